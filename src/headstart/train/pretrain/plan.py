"""How long a run trains and how often it is judged, by its settings or by the time there is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headstart.train.pretrain.config import TrainConfig

# of a run: how often it is judged unless settings say
_VALIDATIONS, _MEASUREMENTS = 20, 4

# of the time for training: what judging may take, unless settings say how often
_JUDGING_SHARE = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How long a run trains; fixed once, so that a run that is taken up takes the same steps.

    Attributes:
        num_steps: of the optimiser.
        validate_every, measure_every: steps between judgements; there is one of each at the end as well.
    """

    num_steps: int
    validate_every: int
    measure_every: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Seconds that parts of a run take.

    Attributes:
        left_s: for all of them together.
        step_s: of one.
        validate_s, measure_s: of one judgement.
    """

    left_s: float
    step_s: float
    validate_s: float
    measure_s: float


def make_plan(train: TrainConfig, pace: Pace | None = None) -> Plan:
    """As many steps as were asked for; with a pace, at most as many as fit into the time that is left.

    Judgements are as often as was asked for, whatever that costs in steps; those that nobody asked for get rarer where
    they would take more than their share.

    Args:
        train: settings.
        pace: `None` if the time has no limit.
    """
    num_steps, share = train.max_steps, 1.0
    if pace is not None:
        per_step_s, at_end_s, usual_s = pace.step_s, 0.0, 0.0
        for cadence, usual, seconds in (
            (train.validate_every, _VALIDATIONS, pace.validate_s),
            (train.measure_every, _MEASUREMENTS, pace.measure_s),
        ):
            if cadence:
                per_step_s += seconds / cadence
                at_end_s += seconds
            else:
                usual_s += usual * seconds
        judging_s = min(usual_s, _JUDGING_SHARE * pace.left_s)
        num_steps = max(1, min(num_steps, int((pace.left_s - at_end_s - judging_s) / per_step_s)))
        share = max(0.0, judging_s / usual_s) if usual_s else 1.0

    def every(asked: int, usual: int) -> int:
        return asked or math.ceil(num_steps / max(1, int(usual * share)))

    return Plan(
        num_steps=num_steps,
        validate_every=every(train.validate_every, _VALIDATIONS),
        measure_every=every(train.measure_every, _MEASUREMENTS),
    )
