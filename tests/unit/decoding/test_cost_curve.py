from __future__ import annotations

import math

import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.errors import ConfigError


def test_linear_between_and_beyond_the_points() -> None:
    curve = CostCurve({1: 4.0, 5: 6.0, 9: 10.0})
    assert [curve.cost(rows) for rows in (1, 3, 5, 7, 9, 11)] == [4, 5, 6, 8, 10, 12]
    assert curve.relative(9) == 2.5


def test_before_the_first_point_the_first_slope_holds_but_not_below_half() -> None:
    curve = CostCurve({4: 4.0, 8: 6.0})
    assert curve.cost(2) == 3.0
    assert CostCurve({4: 4.0, 5: 6.0}).cost(1) == 2.0


@pytest.mark.parametrize(
    "points", [{1: 4.0, 5: 6.0, 9: 10.0}, {6: 4.0, 7: 6.0, 12: 6.5}, {3: 1.0}, {2: 3.0, 40: 5.0}], ids=str
)
def test_costs_of_many_sizes_are_those_of_each(points: dict[int, float]) -> None:
    curve = CostCurve(points)
    for first in range(1, 15):
        for last in range(first - 1, 16):
            assert list(curve.costs(first, last)) == pytest.approx([curve.cost(n) for n in range(first, last + 1)])


def test_one_point_is_proportional_so_that_nothing_unmeasured_looks_cheap() -> None:
    curve = CostCurve({2: 0.01})
    assert curve.cost(1) == 0.005
    assert curve.cost(8) == 0.04


def test_noise_does_not_make_more_rows_cheaper() -> None:
    curve = CostCurve({1: 4.0, 2: 3.5, 4: 5.0})
    assert [curve.cost(rows) for rows in (1, 2, 4)] == [4.0, 4.0, 5.0]


@pytest.mark.parametrize("points", [{}, {0: 1.0}, {1: 0.0}, {1: -1.0}, {1: math.nan}, {1: math.inf}])
def test_points_that_measure_nothing_are_refused(points: dict[int, float]) -> None:
    with pytest.raises(ConfigError):
        CostCurve(points)


def test_a_stolen_time_slice_hardly_moves_the_curve() -> None:
    curve = CostCurve({1: 0.004, 8: 0.006})
    curve.observe(1, 4.0)
    assert curve.cost(1) == pytest.approx(0.004, rel=0.021)
    for _ in range(60):
        curve.observe(1, 0.004)
    assert curve.cost(1) == pytest.approx(0.004, rel=0.005)


def test_a_lasting_change_is_learnt_where_it_was_seen() -> None:
    curve = CostCurve({1: 0.004, 8: 0.006})
    for _ in range(100):
        curve.observe(1, 0.005)
        curve.observe(8, 0.012)
    assert curve.cost(1) == pytest.approx(0.005, rel=0.02)
    assert curve.cost(8) == pytest.approx(0.012, rel=0.02)


def test_sizes_out_of_use_follow_half_way() -> None:
    curve = CostCurve({1: 0.004, 8: 0.006})
    for _ in range(200):
        curve.observe(1, 0.002)
    assert curve.cost(1) == pytest.approx(0.002, rel=0.01)
    assert curve.cost(8) == pytest.approx(0.006 / math.sqrt(2), rel=0.01)


def test_a_pass_between_two_points_moves_the_nearer_more() -> None:
    curve = CostCurve({1: 1.0, 5: 2.0})
    curve.observe(2, 10.0)
    gains = [curve.cost(1) / 1.0, curve.cost(5) / 2.0]
    assert gains[0] > gains[1] > 1.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_clock_that_stood_still_is_ignored(seconds: float) -> None:
    curve = CostCurve({1: 0.004})
    curve.observe(1, seconds)
    assert curve.points == {1: 0.004}
