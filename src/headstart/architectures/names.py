"""Weight names: ours, and what the file formats call them."""

from __future__ import annotations

import re
from typing import Literal

_BLOCK_PARTS = {
    # ours: (Hugging Face, GGUF), inside a block
    "attention.norm": ("input_layernorm", "attn_norm"),
    "attention.q": ("self_attn.q_proj", "attn_q"),
    "attention.k": ("self_attn.k_proj", "attn_k"),
    "attention.v": ("self_attn.v_proj", "attn_v"),
    "attention.q_norm": ("self_attn.q_norm", "attn_q_norm"),
    "attention.k_norm": ("self_attn.k_norm", "attn_k_norm"),
    "attention.output": ("self_attn.o_proj", "attn_output"),
    "mlp.norm": ("post_attention_layernorm", "ffn_norm"),
    "mlp.gate": ("mlp.gate_proj", "ffn_gate"),
    "mlp.up": ("mlp.up_proj", "ffn_up"),
    "mlp.down": ("mlp.down_proj", "ffn_down"),
}
_OUTER_PARTS = {
    "embedding": ("model.embed_tokens", "token_embd"),
    "final_norm": ("model.norm", "output_norm"),
    "unembedding": ("lm_head", "output"),
}
_LAYER = re.compile(r"layers\.(\d+)\.(.+)")


def stored_name(name: str, file_format: Literal["huggingface", "gguf"]) -> str:
    """What a file of this format calls our weight `name` (biases end in ".bias")."""
    column = 0 if file_format == "huggingface" else 1
    name, suffix = (name[: -len(".bias")], "bias") if name.endswith(".bias") else (name, "weight")
    if layer := _LAYER.fullmatch(name):
        number, part = layer.groups()
        block = "model.layers" if file_format == "huggingface" else "blk"
        return f"{block}.{number}.{_BLOCK_PARTS[part][column]}.{suffix}"
    return f"{_OUTER_PARTS[name][column]}.{suffix}"
