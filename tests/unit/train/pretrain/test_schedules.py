from __future__ import annotations

import math

import pytest

from headstart.errors import ConfigError
from headstart.train.pretrain.schedules import HeadsWeight, RateSchedule, RateShape, active_heads


def rate(shape: RateShape, **changes: int | float) -> list[float]:
    settings = {"num_steps": 11, "warmup_steps": 2, "decay_steps": 4, "final_share": 0.1} | changes
    schedule = RateSchedule(shape=shape, **settings)  # type: ignore[arg-type]
    return [schedule.share(step) for step in range(11)]


def test_every_shape_rises_and_ends_where_it_is_told() -> None:
    for shape in ("cosine", "linear", "wsd", "constant"):
        shares = rate(shape)
        assert shares[:3] == [0.5, 1.0, 1.0], shape
        assert shares[-1] == pytest.approx(1.0 if shape == "constant" else 0.1), shape
        assert shares[2:] == sorted(shares[2:], reverse=True), shape


def test_the_middle_of_each_fall() -> None:
    assert rate("linear")[6] == pytest.approx(0.1 + 0.9 * 0.5)
    assert rate("cosine")[4] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert rate("wsd")[:8] == [0.5, *[1.0] * 7]
    assert rate("wsd")[8] == pytest.approx(0.1 + 0.9 * 2 / 3)


@pytest.mark.parametrize("shape", ["cosine", "linear", "wsd", "constant"])
def test_runs_too_short_for_their_parts_have_rates(shape: RateShape) -> None:
    for num_steps in (1, 2):
        for warmup in (0, num_steps):
            schedule = RateSchedule(
                shape=shape, num_steps=num_steps, warmup_steps=warmup, decay_steps=num_steps, final_share=0.1
            )
            assert all(0 < schedule.share(step) <= 1 for step in range(num_steps))


def test_the_weight_of_heads_by_step() -> None:
    """As DeepSeek-V3 has it: 0.3 for two thirds of the tokens, then 0.1."""
    weight = HeadsWeight.parse("0.3,0.1@0.67")
    assert [weight.at(step, 100) for step in (0, 66, 67, 99)] == [0.3, 0.3, 0.1, 0.1]
    assert HeadsWeight.parse("1").at(99, 100) == 1.0
    assert HeadsWeight.parse("0,1@0.5").at(49, 100) == 0.0


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "nan", "inf", "0", "0.3@0.5", "0.3,0.1", "1,2@1", "1,2@0.5,3@0.4", "1,2@0"]
)
def test_weights_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"such as 0\.3,0\.1@0\.67"):
        HeadsWeight.parse(text)


def test_curricula_have_equal_parts() -> None:
    assert [active_heads("forward", 4, step, 8) for step in range(8)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [active_heads("reverse", 4, step, 8) for step in range(8)] == [4, 4, 3, 3, 2, 2, 1, 1]
    assert {active_heads("none", 4, step, 8) for step in range(8)} == {4}
    assert [active_heads("forward", 3, step, 2) for step in range(2)] == [1, 2]
