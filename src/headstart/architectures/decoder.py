"""The program of a llama-like decoder. The families differ in what `TrunkConfig` says."""

from __future__ import annotations

from headstart.architectures.config import TrunkConfig
from headstart.architectures.program import Builder, Program, Value


def decoder_program(config: TrunkConfig) -> Program:
    """Embedding, `num_layers` blocks, final norm, unembedding of the wanted rows."""
    build = Builder()
    x = build.embed("embedding", config.hidden_size)
    for layer in range(config.num_layers):
        x = build.add(x, _attention(build, config, layer, x))
        x = build.add(x, _mlp(build, config, layer, x))
    x = build.select_wanted(x)
    x = build.rms_norm(x, "final_norm", config.norm_eps)
    return build.finish(build.linear(x, "embedding" if config.tied else "unembedding", config.vocab_size))


def _attention(build: Builder, config: TrunkConfig, layer: int, x: Value) -> Value:
    here = f"layers.{layer}.attention"
    head_dim = config.head_dim
    kv_width = config.num_kv_heads * head_dim

    def projection(name: str, width: int) -> Value:
        return build.linear(h, f"{here}.{name}", width, f"{here}.{name}.bias" if config.qkv_bias else None)

    h = build.rms_norm(x, f"{here}.norm", config.norm_eps)
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
        window=config.windows[layer],
        scale=head_dim**-0.5,
    )
    bias = f"{here}.output.bias" if config.output_bias else None
    return build.linear(mixed, f"{here}.output", config.hidden_size, bias)


def _mlp(build: Builder, config: TrunkConfig, layer: int, x: Value) -> Value:
    here = f"layers.{layer}.mlp"

    def bias(name: str) -> str | None:
        return f"{here}.{name}.bias" if config.mlp_bias else None

    h = build.rms_norm(x, f"{here}.norm", config.norm_eps)
    gate = build.linear(h, f"{here}.gate", config.intermediate_size, bias("gate"))
    up = build.linear(h, f"{here}.up", config.intermediate_size, bias("up"))
    return build.linear(build.silu_gate(gate, up), f"{here}.down", config.hidden_size, bias("down"))
