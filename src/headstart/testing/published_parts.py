"""Names and shapes that many published checkpoints share, with which others are rebuilt."""

from __future__ import annotations

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
    """Grouped attention."""
    queries = queries or hidden
    return {
        f"{prefix}q_proj.weight": (queries, hidden),
        f"{prefix}k_proj.weight": (kv, hidden),
        f"{prefix}v_proj.weight": (kv, hidden),
        f"{prefix}o_proj.weight": (hidden, queries),
    }


def latent_attention(prefix: str, hidden: int) -> Shapes:
    """DeepSeek's latent attention."""
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
    """A gated MLP."""
    return {
        f"{prefix}gate_proj.weight": (width, hidden),
        f"{prefix}up_proj.weight": (width, hidden),
        f"{prefix}down_proj.weight": (hidden, width),
    }


def experts(prefix: str, count: int, hidden: int, width: int) -> Shapes:
    """A mixture of experts, each a gated MLP."""
    made: Shapes = {f"{prefix}gate.weight": (count, hidden)}
    for number in range(count):
        made |= mlp(f"{prefix}experts.{number}.", hidden, width)
    return made


def norms(prefix: str, hidden: int, *names: str) -> Shapes:
    """Vectors of norms."""
    return {f"{prefix}{name}.weight": (hidden,) for name in names}


def without(shapes: Shapes, *parts: str) -> Shapes:
    """All but the names that hold one of some parts."""
    return {name: shape for name, shape in shapes.items() if not any(part in name for part in parts)}
