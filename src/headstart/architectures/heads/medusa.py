"""Medusa: residual blocks on the trunk's last hidden, a stack of its own for each depth.

Source: Cai et al. 2401.10774, equation 1.
"""

from __future__ import annotations

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.heads.stage import Stage, trunk_hidden, unembed
from headstart.architectures.program import Builder


def stages(config: HeadsConfig, trunk: TrunkConfig) -> tuple[Stage, ...]:
    """One for each depth; none has a cache."""
    return tuple(_stage(config, trunk, module) for module in range(config.depth))


def _stage(config: HeadsConfig, trunk: TrunkConfig, module: int) -> Stage:
    build = Builder()
    x = build.select_wanted(trunk_hidden(build, config, trunk))
    for layer in range(config.num_layers):
        here = f"modules.{module}.layers.{layer}"
        x = build.add(x, build.silu(build.linear(x, f"{here}.linear", trunk.hidden_size, f"{here}.linear.bias")))
    logits = unembed(build, config, trunk, x, f"modules.{module}.unembedding")
    return Stage(build.finish(logits), 0, None, on_text=False)
