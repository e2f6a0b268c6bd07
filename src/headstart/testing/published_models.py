"""Models with heads of their own as they are published: settings, true names and shapes of heads, and a little of the
trunk.
"""

from __future__ import annotations

from headstart.testing.published_parts import (
    Shapes,
    attention,
    experts,
    latent_attention,
    mlp,
    norms,
    trunk,
)


def deepseek_block(index: int) -> Shapes:
    """The module of DeepSeek V3, which repeats embedding and unembedding."""
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
    """The module of GLM-4.5-Air."""
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
    """The module of Qwen3-Next and on; its experts may be fused into one tensor."""
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
    """A module of MiMo-7B, or of a file of speculators with another prefix."""
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
    """A module of MiMo-V2."""
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
    """The module of ERNIE 4.5; of some originals its projection is stored transposed."""
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
    """A module of Step-3.5."""
    module = f"model.layers.{index}."
    return {
        **norms(module, 4096, "enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"),
        f"{module}eh_proj.weight": (4096, 8192),
        **attention(f"{module}self_attn.", 4096, 1024),
        **mlp(f"{module}mlp.", 4096, 11264),
        f"{module}transformer.shared_head.output.weight": (128896, 4096),
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
    **{
        f"mtp.{stage}.{name}.weight": (4096,) if name.endswith("norm") else (4096, 4096)
        for stage in range(3)
        for name in ("attn_norm", "ffn_norm", "attn.wq_a")
    },
    "mtp.0.main_proj.weight": (4096, 12288),
    "mtp.2.markov_head.markov_w1.weight": (129280, 256),
    "mtp.2.markov_head.markov_w2.weight": (129280, 256),
    "mtp.2.confidence_head.weight": (1, 4096),
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
