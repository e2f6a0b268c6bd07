"""A transformer block as trunks have it, and heads that are made of such blocks."""

from __future__ import annotations

from headstart.architectures.config import TrunkConfig
from headstart.architectures.program import Builder, Value


def block(build: Builder, config: TrunkConfig, here: str, layer: int, x: Value, *, window: int = 0) -> Value:
    """Norm, attention, norm, gated MLP, each added to the residual stream `x`.

    Args:
        build: writes the program.
        config: sizes and choices.
        here: prefix of the block's weight names.
        layer: of the cache.
        x: the residual stream.
        window: positions that a row sees at most, 0 for all.
    """
    h = build.rms_norm(x, f"{here}.attention.norm", config.norm_eps)
    x = build.add(x, attention(build, config, f"{here}.attention", layer, h, window=window))
    return build.add(x, mlp(build, config, f"{here}.mlp", x))


def attention(build: Builder, config: TrunkConfig, here: str, layer: int, h: Value, *, window: int = 0) -> Value:
    """Attention over `h`, which is normed already and may be wider than the stream; not yet added to it."""
    head_dim = config.head_dim
    kv_width = config.num_kv_heads * head_dim

    def projection(name: str, width: int) -> Value:
        return build.linear(h, f"{here}.{name}", width, f"{here}.{name}.bias" if config.qkv_bias else None)

    q = projection("q", config.num_heads * head_dim)
    k = projection("k", kv_width)
    v = projection("v", kv_width)
    if config.head_norms:
        q = build.rms_norm(q, f"{here}.q_norm", config.norm_eps, span=head_dim)
        k = build.rms_norm(k, f"{here}.k_norm", config.norm_eps, span=head_dim)
    mixed = build.attention(
        build.rotary(q, head_dim),
        build.rotary(k, head_dim),
        v,
        layer=layer,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=head_dim,
        window=window,
        scale=head_dim**-0.5,
    )
    bias = f"{here}.output.bias" if config.output_bias else None
    return build.linear(mixed, f"{here}.output", config.hidden_size, bias)


def mlp(build: Builder, config: TrunkConfig, here: str, x: Value) -> Value:
    """The gated MLP over `x`, its norm included; not yet added to the stream."""

    def bias(name: str) -> str | None:
        return f"{here}.{name}.bias" if config.mlp_bias else None

    h = build.rms_norm(x, f"{here}.norm", config.norm_eps)
    gate = build.linear(h, f"{here}.gate", config.intermediate_size, bias("gate"))
    up = build.linear(h, f"{here}.up", config.intermediate_size, bias("up"))
    return build.linear(build.silu_gate(gate, up), f"{here}.down", config.hidden_size, bias("down"))
