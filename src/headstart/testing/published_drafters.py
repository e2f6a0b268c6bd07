"""Drafters in files of their own as they are published: settings, true names and shapes."""

from __future__ import annotations

from headstart.testing.published_parts import Shapes, attention, mlp, norms


def eagle3(layer: str, *, vocab: int = 128256, drafted: int = 32000) -> Shapes:
    """An EAGLE-3 drafter, by what its first layer is called."""
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
