"""Heads as programs: one stage for each depth, and what they read and keep.

A head's row stands for a token of the text, like a trunk's, and knows the
*state* of the token before it: the trunk's taps, or what a stage kept. It
guesses the token that follows the row's. So a row needs nothing of the trunk's
pass over its own token, which has yet to come.

Names of weights that begin with "trunk." are borrowed: "trunk.embedding",
"trunk.final_norm", and "trunk.unembedding", of which heads with a reduced
vocabulary take the rows of their tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import eagle, eagle3, medusa, parallel, sequential
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.heads.stage import Stage

_KINDS = {
    "parallel": parallel.stages,
    "medusa": medusa.stages,
    "sequential": sequential.stages,
    "eagle": eagle.stages,
    "eagle3": eagle3.stages,
}


@dataclass(frozen=True, slots=True)
class HeadsProgram:
    """What runs for each depth.

    Attributes:
        stages: for depth 1, 2, ...; the last one also for all deeper ones if the kind is recurrent and unrolled.
        recurrent: a guess of depth 2 or more is a row of its own, after the guess before it. If not, all
            stages run over the same row.
        num_layers: layers of the heads' own cache; 0 if they have none.
    """

    stages: tuple[Stage, ...]
    recurrent: bool
    num_layers: int

    def stage(self, depth: int) -> Stage:
        """What guesses at this depth, 1 or more."""
        return self.stages[min(depth, len(self.stages)) - 1]


def heads_program(config: HeadsConfig, trunk: TrunkConfig) -> HeadsProgram:
    """The program of heads for a trunk.

    Raises:
        ConfigError: the trunk has not what they read.
    """
    config.check_trunk(trunk)
    stages = _KINDS[config.kind](config, trunk)
    return HeadsProgram(stages, config.recurrent, 1 + max((stage.last_layer for stage in stages), default=-1))
