"""How much is drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from headstart.errors import ConfigError

Policy = Literal["measured", "always"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftConfig:
    """How much is drafted.

    Attributes:
        policy: "measured" gives rows where measured cost and acceptance say that
            it pays; "always" gives rows to all that is drafted, as far as they
            go, and is for experiments and tests.
        max_nodes: nodes at most for a sequence and round.
        max_depth: depth at most.
        min_confidence: guesses that their drafter thinks less likely to be kept than this, with all before them, are
            not followed by others; in [0, 1]. The policy asks for more than that where a further depth would not pay.
            Lookup, and drafters that draw their guesses, have no use for it.

    Raises:
        ConfigError: a value is out of its range.
    """

    policy: Policy = "measured"
    max_nodes: int = 16
    max_depth: int = 16
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise ConfigError(f"policy = {self.policy!r}: it must be one of {', '.join(get_args(Policy))}.")
        for name in ("max_nodes", "max_depth"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} = {getattr(self, name)}: it must be at least 1. To draft nothing, give no drafter."
                )
        if not 0.0 <= self.min_confidence <= 1.0:
            raise ConfigError(f"min_confidence = {self.min_confidence}: it must be between 0 and 1.")
