"""Parallel heads: a transformer block for each depth on the trunk's hidden, all with the trunk's unembedding.

The linear form has a matrix in place of the block.

Source: Gloeckle et al. 2404.19737, section 2 and table S4.
"""

from __future__ import annotations

from headstart.architectures.block import block
from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.heads.stage import Stage, block_config, trunk_hidden, unembed
from headstart.architectures.program import Builder


def stages(config: HeadsConfig, trunk: TrunkConfig) -> tuple[Stage, ...]:
    """One for each depth."""
    return tuple(_stage(config, trunk, module) for module in range(config.depth))


def _stage(config: HeadsConfig, trunk: TrunkConfig, module: int) -> Stage:
    build = Builder()
    here = f"modules.{module}"
    x = trunk_hidden(build, config, trunk)
    if config.form == "linear":
        x = build.linear(x, f"{here}.linear", trunk.hidden_size)
    else:
        inner = block_config(config, trunk)
        for layer in range(config.num_layers):
            x = block(build, inner, f"{here}.layers.{layer}", module * config.num_layers + layer, x)
    x = build.rms_norm(build.select_wanted(x), f"{here}.final_norm", trunk.norm_eps)
    logits = unembed(build, config, trunk, x, f"{here}.unembedding")
    return Stage(build.finish(logits), 0, None, on_text=config.form == "block")
