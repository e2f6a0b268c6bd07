"""Checkpoints as they are published, rebuilt as headers of true names, shapes and settings, and what re-uploads do to
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.measure.inspect import Report, inspect_checkpoint
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor

Shapes = dict[str, tuple[int, ...]]


def trunk(hidden: int, vocab: int, prefix: str = "model.") -> Shapes:
    """Enough of a trunk to be one."""
    return {
        f"{prefix}embed_tokens.weight": (vocab, hidden),
        f"{prefix}layers.0.input_layernorm.weight": (hidden,),
        f"{prefix}layers.0.self_attn.q_proj.weight": (hidden, hidden),
        f"{prefix}layers.0.mlp.down_proj.weight": (hidden, 4 * hidden),
        f"{prefix}norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }


def attention(prefix: str, hidden: int, kv: int, queries: int | None = None) -> Shapes:
    queries = queries or hidden
    return {
        f"{prefix}q_proj.weight": (queries, hidden),
        f"{prefix}k_proj.weight": (kv, hidden),
        f"{prefix}v_proj.weight": (kv, hidden),
        f"{prefix}o_proj.weight": (hidden, queries),
    }


def latent_attention(prefix: str, hidden: int) -> Shapes:
    return {
        f"{prefix}q_a_proj.weight": (1536, hidden),
        f"{prefix}q_a_layernorm.weight": (1536,),
        f"{prefix}q_b_proj.weight": (24576, 1536),
        f"{prefix}kv_a_proj_with_mqa.weight": (576, hidden),
        f"{prefix}kv_a_layernorm.weight": (512,),
        f"{prefix}kv_b_proj.weight": (32768, 512),
        f"{prefix}o_proj.weight": (hidden, 16384),
    }


def mlp(prefix: str, hidden: int, width: int) -> Shapes:
    return {
        f"{prefix}gate_proj.weight": (width, hidden),
        f"{prefix}up_proj.weight": (width, hidden),
        f"{prefix}down_proj.weight": (hidden, width),
    }


def experts(prefix: str, count: int, hidden: int, width: int) -> Shapes:
    made: Shapes = {f"{prefix}gate.weight": (count, hidden)}
    for number in range(count):
        made |= mlp(f"{prefix}experts.{number}.", hidden, width)
    return made


def norms(prefix: str, hidden: int, *names: str) -> Shapes:
    return {f"{prefix}{name}.weight": (hidden,) for name in names}


def without(shapes: Shapes, *parts: str) -> Shapes:
    return {name: shape for name, shape in shapes.items() if not any(part in name for part in parts)}


# ---- models with heads of their own -------------------------------------------------------------


def deepseek_block(index: int) -> Shapes:
    module = f"model.layers.{index}."
    return {
        f"{module}embed_tokens.weight": (129280, 7168),
        f"{module}eh_proj.weight": (7168, 14336),
        **norms(module, 7168, "enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm"),
        f"{module}shared_head.head.weight": (129280, 7168),
        **latent_attention(f"{module}self_attn.", 7168),
        **experts(f"{module}mlp.", 256, 7168, 2048),
        f"{module}mlp.gate.e_score_correction_bias": (256,),
        **mlp(f"{module}mlp.shared_experts.", 7168, 2048),
    }


DEEPSEEK_CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
    "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "n_routed_experts": 256, "vocab_size": 129280,
    "num_attention_heads": 128, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
DEEPSEEK = trunk(7168, 129280) | deepseek_block(61)


def glm_block(index: int, hidden: int = 4096, num_experts: int = 128) -> Shapes:
    module = f"model.layers.{index}."
    return {
        f"{module}embed_tokens.weight": (151552, hidden),
        f"{module}eh_proj.weight": (hidden, 2 * hidden),
        **norms(module, hidden, "enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm"),
        f"{module}shared_head.head.weight": (151552, hidden),
        **attention(f"{module}self_attn.", hidden, 1024, 12288),
        **experts(f"{module}mlp.", num_experts, hidden, 1408),
    }


GLM_CONFIG = {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": 4096, "num_hidden_layers": 46,
    "num_nextn_predict_layers": 1, "n_routed_experts": 128, "vocab_size": 151552, "num_attention_heads": 96,
    "head_dim": 128,
}  # fmt: skip


def qwen_module(hidden: int, *, fused: bool, num_experts: int = 4) -> Shapes:
    block = "mtp.layers.0."
    width = 512
    if fused:
        mixture: Shapes = {
            f"{block}mlp.experts.gate_up_proj": (num_experts, 2 * width, hidden),
            f"{block}mlp.experts.down_proj": (num_experts, hidden, width),
            f"{block}mlp.gate.weight": (num_experts, hidden),
        }
    else:
        mixture = experts(f"{block}mlp.", num_experts, hidden, width)
    return {
        "mtp.fc.weight": (hidden, 2 * hidden),
        **norms("mtp.", hidden, "norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"),
        **norms(block, hidden, "input_layernorm", "post_attention_layernorm"),
        **attention(f"{block}self_attn.", hidden, 512, 8192),
        **mixture,
    }


QWEN_NEXT_CONFIG = {  # as published: no setting speaks of heads
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 2048,
    "num_hidden_layers": 48, "num_experts": 512, "vocab_size": 151936,
}  # fmt: skip
QWEN35_CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40, "mtp_num_hidden_layers": 1,
        "num_experts": 256, "vocab_size": 248320,
    },
}  # fmt: skip
QWEN35_TRUNK = trunk(2048, 248320, "model.language_model.")


def mimo_module(index: int, prefix: str = "model.") -> Shapes:
    module = f"{prefix}mtp_layers.{index}."
    return {
        **norms(module, 4096, "token_layernorm", "hidden_layernorm", "final_layernorm", "input_layernorm",
                "post_attention_layernorm"),
        f"{module}input_proj.weight": (4096, 8192),
        **attention(f"{module}self_attn.", 4096, 1024),
        **{f"{module}self_attn.{name}_proj.bias": (4096 if name == "q" else 1024,) for name in "qkv"},
        **mlp(f"{module}mlp.", 4096, 11008),
    }  # fmt: skip


MIMO_CONFIG = {
    "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "hidden_size": 4096, "num_hidden_layers": 36,
    "num_nextn_predict_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151680,
}  # fmt: skip


def mimo_v2_module(index: int) -> Shapes:
    module = f"model.mtp.layers.{index}."
    return {
        **norms(module, 4096, "enorm", "hnorm", "input_layernorm", "pre_mlp_layernorm", "final_layernorm"),
        f"{module}eh_proj.weight": (4096, 8192),
        f"{module}self_attn.qkv_proj.weight": (64 * 192 + 8 * 320, 4096),
        f"{module}self_attn.o_proj.weight": (4096, 8192),
        f"{module}self_attn.attention_sink_bias": (64,),
        **mlp(f"{module}mlp.", 4096, 16384),
    }


MIMO_V2_CONFIG = {
    "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "hidden_size": 4096,
    "num_hidden_layers": 48, "num_attention_heads": 64, "head_dim": 192, "vocab_size": 152576,
}  # fmt: skip


def ernie_module(*, transposed: bool = False) -> Shapes:
    return {
        "model.mtp_emb_norm.0.weight": (2560,),
        "model.mtp_hidden_norm.0.weight": (2560,),
        "model.mtp_linear_proj.0.weight": (5120, 2560) if transposed else (2560, 5120),
        **norms("model.mtp_block.0.", 2560, "input_layernorm", "post_attention_layernorm"),
        **attention("model.mtp_block.0.self_attn.", 2560, 512),
        **mlp("model.mtp_block.0.mlp.", 2560, 12288),
    }


ERNIE_CONFIG = {
    "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_size": 2560,
    "num_hidden_layers": 28, "num_nextn_predict_layers": 1, "moe_num_experts": 64, "vocab_size": 103424,
}  # fmt: skip

LONGCAT_CONFIG = {
    "architectures": ["LongcatFlashForCausalLM"], "model_type": "longcat_flash", "hidden_size": 6144,
    "num_layers": 28, "n_routed_experts": 512, "vocab_size": 131072,
}  # fmt: skip
LONGCAT_MODULE = {
    "model.mtp.embed_tokens.weight": (131072, 6144),
    "model.mtp.layers.0.eh_proj.weight": (6144, 12288),
    "model.mtp.layers.0.enorm.m.weight": (6144,),
    "model.mtp.layers.0.hnorm.m.weight": (6144,),
    **norms("model.mtp.layers.0.", 6144, "input_layernorm", "post_attention_layernorm"),
    **latent_attention("model.mtp.layers.0.self_attn.", 6144),
    **mlp("model.mtp.layers.0.transformer_layer.mlp.", 6144, 12288),
    "model.mtp.norm.weight": (6144,),
}

NEMOTRON_CONFIG = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 4096,
    "num_hidden_layers": 88, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E",
    "n_routed_experts": 2, "vocab_size": 131072,
}  # fmt: skip
# one head of two physical layers: the first takes in, the last gives out
NEMOTRON_MODULE = {
    **norms("mtp.layers.0.", 4096, "enorm", "hnorm", "norm"),
    "mtp.layers.0.eh_proj.weight": (4096, 8192),
    **attention("mtp.layers.0.mixer.", 4096, 256),
    "mtp.layers.1.mixer.gate.weight": (2, 4096),
    **{f"mtp.layers.1.mixer.experts.{number}.{name}.weight": (4096, 1024) if name == "down_proj" else (1024, 4096)
       for number in range(2) for name in ("up_proj", "down_proj")},
    **norms("mtp.layers.1.", 4096, "norm", "final_layernorm"),
}  # fmt: skip


def step_module(index: int) -> Shapes:
    module = f"model.layers.{index}."
    return {
        **norms(module, 4096, "enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"),
        f"{module}eh_proj.weight": (4096, 8192),
        **attention(f"{module}self_attn.", 4096, 1024),
        **mlp(f"{module}mlp.", 4096, 11264),
        f"{module}transformer.shared_head.output.weight": (128896, 4096),
        f"{module}shared_head.output.weight": (128896, 4096),
    }


STEP_CONFIG = {
    "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 4096, "num_hidden_layers": 45,
    "num_nextn_predict_layers": 3, "vocab_size": 128896,
}  # fmt: skip

DEEPSEEK_V4_CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "hidden_size": 4096,
    "num_hidden_layers": 43, "num_nextn_predict_layers": 1, "vocab_size": 129280,
}  # fmt: skip
DEEPSEEK_V4_MODULE = {
    **norms("mtp.0.", 4096, "enorm", "hnorm", "attn_norm", "ffn_norm", "norm"),
    "mtp.0.e_proj.weight": (4096, 4096),
    "mtp.0.h_proj.weight": (4096, 4096),
    "mtp.0.hc_head_fn": (4, 16384),
}
DSPARK_STAGES = {
    "mtp.0.main_proj.weight": (4096, 8192),
    "mtp.0.markov_head.weight": (129280, 256),
    "mtp.0.confidence_head.weight": (1, 4096),
    "mtp.0.norm.weight": (4096,),
}

MINIMAX_CONFIG = {
    "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "hidden_size": 3072,
    "num_hidden_layers": 62, "num_mtp_modules": 3, "use_mtp": True, "mtp_transformer_layers": 1, "vocab_size": 200064,
}  # fmt: skip

META_CONFIG = {"dim": 4096, "n_layers": 29, "n_heads": 32, "n_future_tokens": 4, "vocab_size": 32000}
META_HEADS = {
    f"extra_heads.{number}.{name}.weight": shape
    for number in range(3)
    for name, shape in {
        "attention.wq": (4096, 4096), "attention.wk": (4096, 4096), "attention.wv": (4096, 4096),
        "attention.wo": (4096, 4096), "feed_forward.w1": (11008, 4096), "feed_forward.w2": (4096, 11008),
        "feed_forward.w3": (11008, 4096), "attention_norm": (4096,), "ffn_norm": (4096,),
    }.items()
}  # fmt: skip
META_TRUNK = {
    "tok_embeddings.weight": (32000, 4096), "layers.0.attention.wq.weight": (4096, 4096), "norm.weight": (4096,),
    "output.weight": (32000, 4096),
}  # fmt: skip

LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
    "tie_word_embeddings": True,
}  # fmt: skip

# ---- drafters in files of their own --------------------------------------------------------------


def eagle3(layer: str, *, vocab: int = 128256, drafted: int = 32000) -> Shapes:
    return {
        "fc.weight": (4096, 12288),
        **norms(f"{layer}.", 4096, "hidden_norm", "input_layernorm", "post_attention_layernorm"),
        **attention(f"{layer}.self_attn.", 8192, 1024, 4096),
        **mlp(f"{layer}.mlp.", 4096, 14336),
        "norm.weight": (4096,),
        "lm_head.weight": (drafted, 4096),
        "d2t": (drafted,),
        "t2d": (vocab,),
    }


EAGLE3_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 1,
    "vocab_size": 128256, "draft_vocab_size": 32000,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]},
}  # fmt: skip
SPECULATORS_CONFIG = {
    "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 32000,
    "eagle_aux_hidden_state_layer_ids": [2, 16, 29], "norm_before_residual": True,
    "transformer_layer_config": {"model_type": "llama", "hidden_size": 4096, "vocab_size": 128256},
    "speculators_config": {"algorithm": "eagle3", "proposal_methods": [{"speculative_tokens": 5}]},
}  # fmt: skip
EAGLE_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 1,
    "vocab_size": 32000,
}  # fmt: skip
EAGLE = {
    "embed_tokens.weight": (32000, 4096),
    "fc.weight": (4096, 8192),
    "fc.bias": (4096,),
    **norms("layers.0.", 4096, "post_attention_layernorm"),
    **attention("layers.0.self_attn.", 4096, 4096),
    **mlp("layers.0.mlp.", 4096, 11008),
}
MEDUSA_CONFIG = {
    "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": 4096, "vocab_size": 32000,
    "num_heads": 5, "num_hidden_layers": 1,
}  # fmt: skip
MEDUSA = {
    f"{prefix}.{head}.{rest}": shape
    for head in range(5)
    for prefix, rest, shape in (
        ("blocks", "layers.0.weight", (4096, 4096)), ("blocks", "layers.0.bias", (4096,)),
        ("lm_heads", "weight", (32000, 4096)),
    )
}  # fmt: skip
OLD_MEDUSA_CONFIG = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "lmsys/vicuna-7b-v1.3"}
OLD_MEDUSA = {
    f"{head}.{rest}": shape
    for head in range(2)
    for rest, shape in {"0.linear.weight": (4096, 4096), "0.linear.bias": (4096,), "1.weight": (32000, 4096)}.items()
}
GEMMA_CONFIG = {
    "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": 5376,
    "text_config": {"model_type": "gemma4_text", "hidden_size": 1024, "num_hidden_layers": 4, "vocab_size": 262144},
}  # fmt: skip
GEMMA = {
    "model.embed_tokens.weight": (262144, 1024),
    "pre_projection.weight": (1024, 10752),
    "post_projection.weight": (5376, 1024),
    "model.layers.0.self_attn.q_proj.weight": (4096, 1024),
    "model.layers.0.self_attn.q_norm.weight": (256,),
    "model.layers.0.self_attn.o_proj.weight": (1024, 4096),
    **mlp("model.layers.0.mlp.", 1024, 8192),
    "model.norm.weight": (1024,),
    "masked_embedding.token_ordering": (262144,),
}


@dataclass(frozen=True, kw_only=True)
class Published:
    """A layout, and what an inspection must say of it."""

    config: dict[str, Any] | None
    shapes: Shapes | None
    family: str | None
    promised: int | None
    present: int | None
    kind: str | None
    depths: int | None
    usable: str = ""  # engines, by name
    says: tuple[str, ...] = ()  # in the findings
    kinds: dict[str, str] = field(default_factory=dict)
    index_only: bool = False


ALL_BUT_LLAMA_CPP = "vllm sglang tensorrt-llm"

ORIGINALS = {
    "DeepSeek-V3": Published(
        config=DEEPSEEK_CONFIG, shapes=DEEPSEEK, kinds={"_proj.weight": "F8_E4M3"}, family="deepseek_v3", promised=1,
        present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP, says=("copies",),
    ),
    "DeepSeek-V3, its index alone": Published(
        config=DEEPSEEK_CONFIG, shapes=DEEPSEEK, index_only=True, family="deepseek_v3", promised=1, present=1,
        kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP, says=("names are known but no sizes",),
    ),
    "GLM-4.5-Air": Published(
        config=GLM_CONFIG, shapes=trunk(4096, 151552) | glm_block(46), family="glm4_moe", promised=1, present=1,
        kind="sequential", depths=1, usable=f"{ALL_BUT_LLAMA_CPP} transformers",
    ),
    "Qwen3-Next": Published(
        config=QWEN_NEXT_CONFIG, shapes=trunk(2048, 151936) | qwen_module(2048, fused=False, num_experts=512),
        family="qwen3_next", promised=1, present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
        says=("less one",),
    ),
    "Qwen3.5-MoE": Published(
        config=QWEN35_CONFIG, shapes=QWEN35_TRUNK | qwen_module(2048, fused=True, num_experts=256),
        family="qwen3_5", promised=1, present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
        says=("fused",),
    ),
    "MiMo-7B": Published(
        config=MIMO_CONFIG, shapes=trunk(4096, 151680) | mimo_module(0), family="mimo", promised=1, present=1,
        kind="sequential", depths=1, usable="vllm sglang", says=("state first",),
    ),
    "MiMo-V2-Flash": Published(
        config=MIMO_V2_CONFIG,
        shapes=trunk(4096, 152576) | mimo_v2_module(0) | mimo_v2_module(1) | mimo_v2_module(2),
        family="mimo_v2", promised=None, present=3, kind="sequential", depths=3, usable="vllm sglang",
    ),
    "ERNIE-4.5-21B-A3B": Published(
        config=ERNIE_CONFIG, shapes=trunk(2560, 103424) | ernie_module(), family="ernie4_5_moe", promised=1,
        present=1, kind="sequential", depths=1, usable="vllm sglang",
    ),
    "LongCat-Flash": Published(
        config=LONGCAT_CONFIG, shapes=trunk(6144, 131072) | LONGCAT_MODULE, family="longcat_flash", promised=1,
        present=1, kind="sequential", depths=1, usable="vllm sglang",
    ),
    "Nemotron 3 Super": Published(
        config=NEMOTRON_CONFIG, shapes={"backbone.embeddings.weight": (131072, 4096), **NEMOTRON_MODULE},
        family="nemotron_h", promised=1, present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
    ),
    "Step-3.5-Flash": Published(
        config=STEP_CONFIG, shapes=trunk(4096, 128896) | step_module(45) | step_module(46) | step_module(47),
        family="step3p5", promised=3, present=3, kind="sequential", depths=3, usable=ALL_BUT_LLAMA_CPP,
    ),
    "DeepSeek-V4": Published(
        config=DEEPSEEK_V4_CONFIG, shapes=trunk(4096, 129280) | DEEPSEEK_V4_MODULE, family="deepseek_v4", promised=1,
        present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
    ),
    "Meta's 7B_1T_4": Published(
        config=META_CONFIG, shapes=META_TRUNK | META_HEADS, family="meta_multi_token", promised=3, present=3,
        kind="parallel", depths=3,
    ),
    "Meta's 7B_1T_4, pickled as published": Published(
        config=META_CONFIG, shapes=None, family="meta_multi_token", promised=3, present=None, kind="parallel",
        depths=3, says=("pickled",),
    ),
    "Llama 3.2": Published(
        config=LLAMA_CONFIG, shapes=without(trunk(2048, 128256), "lm_head"), family="llama", promised=0, present=0,
        kind=None, depths=0,
    ),
    "EAGLE-3 of its authors": Published(
        config=EAGLE3_CONFIG, shapes=eagle3("midlayer"), kinds={"2t": "I64", "t2d": "BOOL"}, family="eagle3",
        promised=1, present=1, kind="eagle3", depths=None, usable=ALL_BUT_LLAMA_CPP,
    ),
    "EAGLE-1": Published(
        config=EAGLE_CONFIG, shapes=EAGLE, family="eagle", promised=1, present=1, kind="eagle", depths=None,
        usable="vllm sglang",
    ),
    "Medusa as vLLM takes it": Published(
        config=MEDUSA_CONFIG, shapes=MEDUSA, family="medusa", promised=5, present=5, kind="medusa", depths=5,
        usable="vllm",
    ),
    "Medusa of its authors": Published(
        config=OLD_MEDUSA_CONFIG, shapes=OLD_MEDUSA, family="medusa", promised=2, present=2, kind="medusa", depths=2,
        usable="vllm",
    ),
    "Gemma 4 assistant": Published(
        config=GEMMA_CONFIG, shapes=GEMMA, kinds={"token_ordering": "I64"}, family="gemma4_assistant", promised=1,
        present=1, kind="assistant", depths=None, usable="vllm",
    ),
}  # fmt: skip

TRAPS = {
    "the settings promise, the tensors lack (a quantised GLM)": Published(
        config=GLM_CONFIG | {"quantization_config": {"quant_method": "awq", "bits": 4}}, shapes=trunk(4096, 151552),
        family="glm4_moe", promised=1, present=0, kind="sequential", depths=0, says=("promises 1, but no tensors",),
    ),
    "the settings promise, as MiniMax-M2's do, what was never published": Published(
        config=MINIMAX_CONFIG, shapes=trunk(3072, 200064), family="minimax", promised=3, present=0, kind=None,
        depths=0, says=("num_mtp_modules promises 3",),
    ),
    "no setting promises, and they are dropped (Qwen3-Next through AutoAWQ)": Published(
        config=QWEN_NEXT_CONFIG, shapes=trunk(2048, 151936), family="qwen3_next", promised=1, present=0,
        kind="sequential", depths=0, says=("the family (Qwen3-Next) promises 1",),
    ),
    "the prefix without modules": Published(
        config=QWEN35_CONFIG, shapes=QWEN35_TRUNK | {"mtp.embed_tokens.weight": (248320, 2048)}, family="qwen3_5",
        promised=1, present=0, kind="sequential", depths=0, says=("no module is among them: mtp.embed_tokens",),
    ),
    "the prefix with heads of another kind (DeepSeek-V4.1)": Published(
        config=DEEPSEEK_V4_CONFIG | {"model_type": "deepseek_v41"}, shapes=trunk(4096, 129280) | DSPARK_STAGES,
        family="deepseek_v4", promised=1, present=1, kind="dspark", depths=None, usable="vllm",
    ),
    "the count set to 0, the tensors left": Published(
        config=DEEPSEEK_CONFIG | {"num_nextn_predict_layers": 0}, shapes=DEEPSEEK, family="deepseek_v3", promised=0,
        present=1, kind="sequential", depths=1, says=("num_nextn_predict_layers is 0",),
    ),
    "more promised than there is": Published(
        config=STEP_CONFIG, shapes=trunk(4096, 128896) | step_module(45), family="step3p5", promised=3, present=1,
        kind="sequential", depths=1, says=("promises 3, but 1 complete",),
    ),
    "one part lost": Published(
        config=MIMO_CONFIG, shapes=trunk(4096, 151680) | without(mimo_module(0), "hidden_layernorm"), family="mimo",
        promised=1, present=0, kind="sequential", depths=0, says=("Module 0 lacks the norm of the state",),
    ),
    "only a last norm and a copy of the unembedding are left": Published(
        config=DEEPSEEK_CONFIG, shapes=trunk(7168, 129280) | {
            "model.layers.61.shared_head.norm.weight": (7168,),
            "model.layers.61.shared_head.head.weight": (129280, 7168),
        },
        family="deepseek_v3", promised=1, present=0, kind="sequential", depths=0, says=("lacks the projection",),
    ),
    "quantised names": Published(
        config=GLM_CONFIG | {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        shapes=trunk(4096, 151552) | without(glm_block(46, num_experts=128), "eh_proj") | {
            "model.layers.46.eh_proj.qweight": (1024, 4096),
            "model.layers.46.eh_proj.scales": (64, 4096),
            "model.layers.46.eh_proj.qzeros": (64, 512),
        },
        kinds={"qweight": "I32", "qzeros": "I32"}, family="glm4_moe", promised=1, present=1, kind="sequential",
        depths=1, usable=f"{ALL_BUT_LLAMA_CPP} transformers",
    ),
    "scales without their values": Published(
        config=GLM_CONFIG, shapes=trunk(4096, 151552) | without(glm_block(46), "eh_proj") | {
            "model.layers.46.eh_proj.weight_scale_inv": (32, 64),
        },
        family="glm4_moe", promised=1, present=0, kind="sequential", depths=0, says=("lacks the projection",),
    ),
    "a trunk pruned without its heads": Published(
        config=GLM_CONFIG | {"n_routed_experts": 96}, shapes=trunk(4096, 151552) | glm_block(46), family="glm4_moe",
        promised=1, present=1, kind="sequential", depths=1, says=("has 128 experts, but the settings speak of 96",),
    ),
    "a projection stored transposed (ERNIE-4.5-300B)": Published(
        config=ERNIE_CONFIG, shapes=trunk(2560, 103424) | ernie_module(transposed=True), family="ernie4_5_moe",
        promised=1, present=1, kind="sequential", depths=1, says=("stored transposed",),
    ),
    "heads of another model": Published(
        config=MIMO_CONFIG | {"hidden_size": 5120}, shapes=trunk(5120, 151680) | mimo_module(0), family="mimo",
        promised=1, present=1, kind="sequential", depths=1, says=("another model's",),
    ),
    "speculators' EAGLE-3, whose layer SGLang drops": Published(
        config=SPECULATORS_CONFIG, shapes=eagle3("layers.0"), kinds={"d2t": "I64", "t2d": "BOOL"}, family="eagle3",
        promised=1, present=1, kind="eagle3", depths=5, usable="vllm tensorrt-llm",
    ),
    "an EAGLE-3 without its map, its layers and its norm's place": Published(
        config={key: value for key, value in SPECULATORS_CONFIG.items()
                if key not in ("norm_before_residual", "eagle_aux_hidden_state_layer_ids")},
        shapes=without(eagle3("layers.0"), "2t", "t2d"), family="eagle3", promised=1, present=1, kind="eagle3",
        depths=5, says=("d2t, which says which, is missing", "which layers", "norm_before_residual is not stated"),
    ),
    "speculators' MTP file, which no engine takes as it is": Published(
        config={"architectures": ["MTPSpeculator"], "speculators_model_type": "mtp"}, shapes=mimo_module(0, ""),
        family="speculators_mtp", promised=1, present=1, kind="sequential", depths=1,
    ),
    "a family that no one knows": Published(
        config={"model_type": "homegrown", "hidden_size": 4096, "num_hidden_layers": 46},
        shapes=trunk(4096, 151552) | glm_block(46), family="homegrown", promised=0, present=1, kind="sequential",
        depths=1, says=("no setting speaks of them",),
    ),
    "heads in a naming scheme that is not known": Published(
        config={"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 2}, "num_hidden_layers": 8},
        shapes={"mtp.stage.0.mixer_in.weight": (8, 8)}, family="inkling", promised=2, present=None, kind=None,
        depths=2, says=("may be heads",),
    ),
    "a tensors' file without settings": Published(
        config=None, shapes=trunk(7168, 129280) | deepseek_block(61), family=None, promised=None, present=1,
        kind="sequential", depths=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ORIGINALS, *TRAPS])
def test_a_layout_is_told(name: str, inspect_files: Callable[..., Report]) -> None:
    published = (ORIGINALS | TRAPS)[name]
    report = inspect_files(published.config, published.shapes, kinds=published.kinds, index_only=published.index_only)
    heads = report.native_heads
    assert report.family == published.family
    assert (heads.promised, heads.present) == (published.promised, published.present)
    assert (heads.kind, heads.depths) == (published.kind, published.depths)
    known = None not in (published.promised, published.present)
    assert heads.agrees is ((published.promised == published.present) if known else None)
    usable = {engine.name for engine in report.engines if engine.supported}
    assert usable == set(published.usable.split())
    for engine in report.engines:
        assert bool(engine.flags) == (engine.supported or engine.after_conversion)
    texts = [finding.text for finding in report.findings]
    for words in published.says:
        assert any(words in text for text in texts), texts


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_original_has_no_problems(name: str, inspect_files: Callable[..., Report]) -> None:
    published = ORIGINALS[name]
    report = inspect_files(published.config, published.shapes, kinds=published.kinds, index_only=published.index_only)
    assert [finding for finding in report.findings if finding.level == "problem"] == []


# ---- GGUF ----------------------------------------------------------------------------------------

NEXTN = {
    "nextn.eh_proj.weight": (32, 64), "nextn.enorm.weight": (32,), "nextn.hnorm.weight": (32,),
    "nextn.shared_head_norm.weight": (32,), "attn_q.weight": (64, 32), "attn_k.weight": (16, 32),
    "attn_v.weight": (16, 32), "attn_output.weight": (32, 64), "ffn_gate_exps.weight": (2, 8, 32),
    "ffn_up_exps.weight": (2, 8, 32), "ffn_down_exps.weight": (2, 32, 32),
}  # fmt: skip


def write_qwen35_gguf(path: Path, *, nextn: int, modules: int) -> Path:
    shapes = {"token_embd.weight": (64, 32), "blk.39.attn_norm.weight": (32,), "output.weight": (64, 32)}
    for number in range(modules):
        shapes |= {f"blk.{40 + number}.{name}": shape for name, shape in NEXTN.items()}
    keys: dict[str, object] = {"general.architecture": "qwen35moe", "qwen35moe.block_count": 40 + nextn}
    if nextn:
        keys["qwen35moe.nextn_predict_layers"] = nextn
    write_gguf(path, keys, [make_tensor(name, np.ones(shape, np.float32)) for name, shape in shapes.items()])
    return path


def test_a_gguf_with_its_heads(tmp_path: Path) -> None:
    report = inspect_checkpoint(write_qwen35_gguf(tmp_path / "q.gguf", nextn=1, modules=1))
    heads = report.native_heads
    assert (report.family, heads.promised, heads.present, heads.layout) == ("qwen3_5", 1, 1, "nextn")
    assert heads.promised_by == "qwen35moe.nextn_predict_layers"
    engines = {engine.name: engine for engine in report.engines}
    assert engines["llama.cpp"].supported
    assert engines["llama.cpp"].flags == ("--spec-type", "draft-mtp", "--spec-draft-n-max", "1")
    assert engines["llama.cpp"].since == "pull request 22673"
    assert not engines["vllm"].supported
    assert "gguf" in engines["vllm"].why
    assert report.sizes.cache_bytes_per_token == (16 + 16) * 2


def test_a_gguf_whose_conversion_left_them_out(tmp_path: Path) -> None:
    report = inspect_checkpoint(write_qwen35_gguf(tmp_path / "q.gguf", nextn=0, modules=0))
    assert (report.native_heads.promised, report.native_heads.present) == (0, 0)
    assert not any(engine.supported or engine.after_conversion for engine in report.engines)


def test_a_gguf_that_promises_what_a_quantiser_dropped(tmp_path: Path) -> None:
    report = inspect_checkpoint(write_qwen35_gguf(tmp_path / "q.gguf", nextn=1, modules=0))
    assert report.native_heads.agrees is False
    assert report.findings[0].level == "problem"
