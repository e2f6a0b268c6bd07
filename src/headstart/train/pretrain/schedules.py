"""What changes over a run, as functions of the step: the learning rate, the heads' weight, and how many are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headstart.errors import ConfigError

RateShape = Literal["cosine", "linear", "wsd", "constant"]
Curriculum = Literal["none", "forward", "reverse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RateSchedule:
    """The learning rate as a share of its highest.

        wsd     ___________         cosine, linear fall at once after the rise; constant never does
               /           \\
              / warm-up     \\_ decay

    Attributes:
        shape: what follows the warm-up.
        num_steps: of the run.
        warmup_steps: of the linear rise.
        decay_steps: of the fall of "wsd".
        final_share: at the last step.
    """

    shape: RateShape
    num_steps: int
    warmup_steps: int
    decay_steps: int
    final_share: float

    def share(self, step: int) -> float:
        """At a step, from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.shape == "constant":
            return 1.0
        begin = self.num_steps - self.decay_steps if self.shape == "wsd" else self.warmup_steps
        # 1 at the first step of the fall, 0 at the last step of the run
        left = 1.0 - max(0, step - begin) / max(1, self.num_steps - 1 - begin)
        if self.shape == "cosine":
            left = 0.5 * (1.0 + math.cos(math.pi * (1.0 - left)))
        return self.final_share + (1.0 - self.final_share) * max(0.0, left)


@dataclass(frozen=True, slots=True)
class HeadsWeight:
    """The weight of the heads' losses by share of the run.

    Attributes:
        parts: (share of the steps from which on, weight), ascending, the first from 0.
    """

    parts: tuple[tuple[float, float], ...]

    @classmethod
    def parse(cls, text: str) -> HeadsWeight:
        """Read "0.3" or "0.3,0.1@0.67".

        Raises:
            ConfigError: no number, a negative weight, or shares that do not ascend between 0 and 1.
        """
        parts = []
        for index, part in enumerate(text.split(",")):
            value, at, share = part.partition("@")
            try:
                parts.append((float(share) if at else 0.0, float(value)))
            except ValueError:
                raise _wrong(text) from None
            if bool(at) == (index == 0):
                raise _wrong(text)
        shares = [share for share, _ in parts]
        weights = [weight for _, weight in parts]
        ascending = shares == sorted(set(shares)) and shares[-1] < 1
        if not ascending or not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise _wrong(text)
        return cls(tuple(parts))

    def at(self, step: int, num_steps: int) -> float:
        """At a step, from 0."""
        return [weight for share, weight in self.parts if step >= share * num_steps][-1]


def active_heads(curriculum: Curriculum, num_heads: int, step: int, num_steps: int) -> int:
    """How many heads are trained at a step, the trunk's own among them.

    The run is cut into `num_heads` equal parts; a forward curriculum adds a head with each, a reverse one drops one.

    Source: 2505.22757.
    """
    if curriculum == "none":
        return num_heads
    part = min(step * num_heads // num_steps, num_heads - 1)
    return part + 1 if curriculum == "forward" else num_heads - part


def _wrong(text: str) -> ConfigError:
    return ConfigError(
        f"heads.weight = {text!r}: give a weight, not negative, and perhaps others from shares of the run on, "
        "ascending below 1, such as 0.3,0.1@0.67."
    )
