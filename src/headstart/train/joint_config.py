"""What a joint training is asked for: a graft, and how far its trunk may go. No torch is needed to refuse it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from headstart.errors import ConfigError
from headstart.train.graft_config import EPOCHS, GraftConfig

# of the time, and of the epochs: what heads have alone, before the trunk moves towards them, and then both
_ALONE_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class JointConfig:
    """How trunk and heads are trained together.

    Attributes:
        graft: the heads, their text, and the time or epochs of both stages together, half for each.
        trunk_learning_rate: of the trunk at its highest, far below that of the heads.
        heads_weight: of the heads' loss beside the trunk's own.
        label_weight: of the cross-entropy on the text's own tokens in the trunk's own loss, beside the KL divergence
            from the trunk as it was, whose weight is 1.
        max_drift: nats a token; a run whose trunk has gone farther from what it was, on held-out text, stops. Not
            part of the settings: another limit is no other run.

    Raises:
        ConfigError: a value is out of its range.

    Source: Cai et al. 2401.10774 (Medusa-2), section 2.2.2; the trunk's own loss is that of its section 2.3.2.
    """

    graft: GraftConfig
    trunk_learning_rate: float = 1e-5
    heads_weight: float = 0.2
    label_weight: float = 0.0
    max_drift: float = 0.05

    def __post_init__(self) -> None:
        for name in ("trunk_learning_rate", "heads_weight", "max_drift"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} = {value}: it must be a finite number above 0.")
        if not (math.isfinite(self.label_weight) and self.label_weight >= 0):
            raise ConfigError(f"label_weight = {self.label_weight}: it must be finite and not negative.")

    def alone(self) -> GraftConfig:
        """The first stage, a graft of its own: half of the time and of the epochs."""
        graft = self.graft
        epochs = EPOCHS if graft.epochs is None and graft.minutes is None else graft.epochs
        return replace(
            graft,
            minutes=None if graft.minutes is None else _ALONE_SHARE * graft.minutes,
            epochs=None if epochs is None else _ALONE_SHARE * epochs,
        )

    def together(self) -> GraftConfig:
        """The second stage: the other half, of heads that know depth 1 already."""
        return replace(self.alone(), first_depth_share=0.0)

    def settings(self) -> dict[str, Any]:
        """What a run is resumed with or not at all, as JSON would hold it."""
        return self.graft.settings() | {
            "joint": {
                "trunk_learning_rate": self.trunk_learning_rate,
                "heads_weight": self.heads_weight,
                "label_weight": self.label_weight,
            }
        }
