"""EAGLE-3: several layers of the trunk fused; a block whose attention reads embedding and hidden side by side.

The fused hidden is the residual stream; what is recycled is the block's own output, so that
deeper guesses were trained on what they get.

Source: Li et al. 2503.01840.
"""

from __future__ import annotations

from headstart.architectures.block import attention, mlp
from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.heads.stage import Stage, block_config, joined, normed_taps, unembed
from headstart.architectures.program import Builder


def stages(config: HeadsConfig, trunk: TrunkConfig) -> tuple[Stage, ...]:
    """The module on the fused taps, and on its own output."""
    return (_stage(config, trunk, reads=0), _stage(config, trunk, reads=1))


def _stage(config: HeadsConfig, trunk: TrunkConfig, *, reads: int) -> Stage:
    build = Builder()
    eps = trunk.norm_eps
    if reads == 0:
        x = build.linear(normed_taps(build, config, trunk, "tap_norms"), "fuse", trunk.hidden_size)
    else:
        x = build.state(trunk.hidden_size)
    embedding = build.rms_norm(build.embed("trunk.embedding", trunk.hidden_size), "embedding_norm", eps)
    hidden = build.rms_norm(x, "hidden_norm", eps)
    inner = block_config(config, trunk)
    x = build.add(x, attention(build, inner, "block.attention", 0, joined(build, config, hidden, embedding)))
    x = build.add(x, mlp(build, inner, "block.mlp", x))
    normed = build.rms_norm(x, "final_norm", eps)
    logits = unembed(build, config, trunk, build.select_wanted(normed))
    kept = normed if config.recycled_stage == "post_norm" else x
    return Stage(build.finish(logits, (kept,)), reads, 1, reads == 0)
