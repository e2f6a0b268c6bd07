"""How many steps fit into a time, with all that is done between them."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.train.pretrain.config import TrainConfig
from headstart.train.pretrain.plan import Pace, Plan, make_plan


def planned(left: float, validate: float, measure: float, **settings: Any) -> tuple[Plan, float]:
    """The plan for steps of a second, and the seconds that it takes."""
    train = TrainConfig(minutes=1.0, **settings)
    plan = make_plan(train, Pace(left_s=left, step_s=1.0, validate_s=validate, measure_s=measure))
    times = {
        name: plan.num_steps // every + (plan.num_steps % every > 0)
        for name, every in (("validate", plan.validate_every), ("measure", plan.measure_every))
    }
    return plan, plan.num_steps + times["validate"] * validate + times["measure"] * measure


@pytest.mark.parametrize("cadence", [{}, {"validate_every": 1}, {"measure_every": 1}, {"validate_every": 7}])
@pytest.mark.parametrize(("validate", "measure"), [(0.0, 0.0), (0.5, 2.0), (10.0, 30.0), (0.01, 100.0)])
@pytest.mark.parametrize("left", [100.0, 1000.0, 30000.0])
def test_a_run_takes_about_the_time_that_is_left(
    left: float, validate: float, measure: float, cadence: dict[str, int]
) -> None:
    plan, seconds = planned(left, validate, measure, **cadence)
    # at the end everything is judged, which a short time has no room for
    assert seconds <= max(left, plan.num_steps + validate + measure + left * 0.25)
    if left > 100 * (validate + measure):
        assert seconds > 0.75 * left


def test_what_is_asked_for_is_done_as_often() -> None:
    assert planned(100.0, 4.0, 5.0, validate_every=1, measure_every=1)[0] == Plan(
        num_steps=9, validate_every=1, measure_every=1
    )
    assert make_plan(TrainConfig(steps=40)) == Plan(num_steps=40, validate_every=2, measure_every=10)
    assert make_plan(TrainConfig(steps=40, validate_every=9)).validate_every == 9
    assert planned(1000.0, 0.0, 0.0, steps=10)[0].num_steps == 10


def test_time_that_is_spent_leaves_one_step() -> None:
    assert planned(-5.0, 1.0, 1.0)[0].num_steps == 1
