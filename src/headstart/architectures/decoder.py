"""The program of a llama-like decoder. The families differ in what `TrunkConfig` says."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.architectures.block import block
from headstart.architectures.config import TrunkConfig
from headstart.architectures.program import Builder, Program


def decoder_program(config: TrunkConfig, taps: Sequence[int] = ()) -> Program:
    """Embedding, `num_layers` blocks, final norm, unembedding of the wanted rows.

    Args:
        config: of the trunk.
        taps: layers whose output is kept for heads: 0 is the embedding, `num_layers` what the final norm gets.
    """
    build = Builder()
    x = build.embed("embedding", config.hidden_size)
    outputs = [x]
    for layer in range(config.num_layers):
        x = block(build, config, f"layers.{layer}", layer, x, window=config.windows[layer])
        outputs.append(x)
    x = build.select_wanted(x)
    x = build.rms_norm(x, "final_norm", config.norm_eps)
    logits = build.linear(x, "embedding" if config.tied else "unembedding", config.vocab_size)
    return build.finish(logits, tuple(outputs[tap] for tap in taps))
