"""EAGLE-1: the next feature of the trunk from this one and the token after it, unembedded by the trunk.

The block has no norm before its attention, and no norm follows it: what it
gives is meant to be the trunk's own feature, past the trunk's final norm.

Source: Li et al. 2401.15077.
"""

from __future__ import annotations

from headstart.architectures.block import attention, mlp
from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.heads.stage import Stage, block_config, joined, trunk_hidden, unembed
from headstart.architectures.program import Builder


def stages(config: HeadsConfig, trunk: TrunkConfig) -> tuple[Stage, ...]:
    """The module on the trunk's feature, and on its own."""
    return (_stage(config, trunk, reads=0), _stage(config, trunk, reads=1))


def _stage(config: HeadsConfig, trunk: TrunkConfig, *, reads: int) -> Stage:
    build = Builder()
    hidden = trunk_hidden(build, config, trunk) if reads == 0 else build.state(trunk.hidden_size)
    embedding = build.embed("trunk.embedding", trunk.hidden_size)
    x = build.linear(joined(build, config, hidden, embedding), "projection", trunk.hidden_size)
    inner = block_config(config, trunk)
    x = build.add(x, attention(build, inner, "block.attention", 0, x))
    x = build.add(x, mlp(build, inner, "block.mlp", x))
    logits = unembed(build, config, trunk, build.select_wanted(x))
    return Stage(build.finish(logits, (x,)), reads, 1, reads == 0)
