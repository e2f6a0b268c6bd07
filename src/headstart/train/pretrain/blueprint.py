"""What is trained, before any weight is made. No torch is needed for it."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.errors import ConfigError
from headstart.train.pretrain.config import PretrainConfig


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Blueprint:
    """What is trained, before any weight is made.

    Attributes:
        trunk: its sizes.
        heads: theirs, or `None` for next-token training.
        source: the checkpoint that training goes on from, or `None`.
    """

    trunk: TrunkConfig
    heads: HeadsConfig | None
    source: Checkpoint | None


def make_blueprint(config: PretrainConfig, vocab_size: int) -> Blueprint:
    """Settle what is trained.

    Args:
        config: of the run.
        vocab_size: of the corpus; a checkpoint has its own.

    Raises:
        ConfigError: settings that do not fit together.
        CheckpointError, UnsupportedError: the checkpoint cannot be used.
    """
    source = open_checkpoint(config.model.start) if config.model.start else None
    if source is None:
        trunk = config.model.trunk_config(vocab_size, config.data.window, config.heads.removed_layers)
    else:
        _, trunk = read_config(source)
        if config.data.window > trunk.max_context:
            raise ConfigError(
                f"data.window = {config.data.window}: the model of model.start has {trunk.max_context} positions. "
                "Take shorter windows."
            )
    return Blueprint(trunk=trunk, heads=config.heads.heads_config(trunk), source=source)
