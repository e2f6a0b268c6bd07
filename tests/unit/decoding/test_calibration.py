from __future__ import annotations

import math
import random

import pytest

from headstart.decoding.calibration import Calibrator
from headstart.decoding.trees import chain, conditional_probabilities
from headstart.records import EMPTY_TREE, Tree


def conditional(calibrator: Calibrator, raw: float, depth: int = 1) -> float:
    tree = calibrator.calibrate(chain([1] * depth, [raw] * depth))
    return conditional_probabilities(tree)[-1]


def observe_at_rate(calibrator: Calibrator, raw: float, rate: float, rounds: int, source: random.Random) -> None:
    for _ in range(rounds):
        calibrator.observe(chain([1], [raw]), [1 if source.random() < rate else 0])


def test_unobserved_guesses_are_believed() -> None:
    tree = chain([1, 2, 3], [0.9, 0.5, 0.2])
    assert Calibrator().calibrate(tree).path_probabilities == pytest.approx(tree.path_probabilities)
    assert Calibrator().calibrate(EMPTY_TREE) == EMPTY_TREE


@pytest.mark.parametrize(("raw", "rate"), [(0.9, 0.5), (0.5, 0.9), (0.3, 0.02), (0.99, 0.97), (0.02, 0.4)])
def test_observed_guesses_converge_to_their_rate(raw: float, rate: float) -> None:
    calibrator, source = Calibrator(), random.Random(5)
    estimates = []
    for _ in range(40):
        observe_at_rate(calibrator, raw, rate, 20, source)
        estimates.append(conditional(calibrator, raw))
    settled = estimates[10:]
    assert sum(settled) / len(settled) == pytest.approx(rate, abs=0.06)


def test_confidences_and_depths_are_judged_apart() -> None:
    calibrator = Calibrator()
    for _ in range(200):
        calibrator.observe(chain([1, 2, 3, 4], [0.9, 0.9, 0.9, 0.9]), [1, 2, 0])
        calibrator.observe(chain([1], [0.2]), [0])
    assert conditional(calibrator, 0.9, depth=1) > 0.95
    assert conditional(calibrator, 0.2, depth=1) < 0.05
    assert conditional(calibrator, 0.9, depth=2) > 0.95
    assert conditional(calibrator, 0.9, depth=3) < 0.05
    assert conditional(calibrator, 0.9, depth=7) < 0.05


def test_a_drafter_that_lies_in_one_bin_is_distrusted_in_the_others() -> None:
    calibrator = Calibrator()
    observe_at_rate(calibrator, 0.9, 0.0, 50, random.Random(6))
    assert conditional(calibrator, 0.5) < 0.1
    # but not believed beyond its word for having been too modest
    calibrator = Calibrator()
    observe_at_rate(calibrator, 0.1, 1.0, 50, random.Random(6))
    assert conditional(calibrator, 0.5) == pytest.approx(0.5)


def test_the_past_is_forgotten() -> None:
    calibrator = Calibrator()
    observe_at_rate(calibrator, 0.8, 0.0, 1000, random.Random(7))
    observe_at_rate(calibrator, 0.8, 1.0, 100, random.Random(7))
    assert conditional(calibrator, 0.8) > 0.8


def test_siblings_are_judged_each_for_itself_and_branches_not_taken_not_at_all() -> None:
    # root -> 1 (0.6) -> 3, root -> 2 (0.3) -> 4; 2 and 4 are written
    tree = Tree((1, 2, 3, 4), (-1, -1, 0, 1), (0.6, 0.3, 0.54, 0.12))
    calibrator = Calibrator()
    for _ in range(100):
        calibrator.observe(tree, [2, 4, 9])
    first, second, not_reached, below = conditional_probabilities(calibrator.calibrate(tree))
    assert first < 0.1
    assert second > 0.9
    assert not_reached == pytest.approx(0.9)
    assert below > 0.9


def test_guesses_below_a_wrong_one_are_not_judged() -> None:
    calibrator = Calibrator()
    for _ in range(100):
        calibrator.observe(chain([1, 2], [0.9, 0.9]), [7, 2, 3])
    assert conditional(calibrator, 0.9, depth=2) == pytest.approx(0.9)


def test_nodes_beyond_what_was_written_are_not_judged() -> None:
    calibrator = Calibrator()
    for _ in range(100):
        calibrator.observe(chain([1, 2], [0.9, 0.9]), [1])
    assert conditional(calibrator, 0.9, depth=2) == pytest.approx(0.9)


def test_a_node_without_rows_is_judged_by_the_token_that_was_written_anyway() -> None:
    calibrator = Calibrator()
    for _ in range(100):
        calibrator.observe(chain([1, 2], [0.9, 0.9]), [1, 7])
    assert conditional(calibrator, 0.9, depth=2) < 0.1


def test_best_conditionals_bound_every_guess() -> None:
    calibrator, source = Calibrator(), random.Random(8)
    for _ in range(300):
        raw = source.random()
        calibrator.observe(chain([1, 1, 1, 1], [raw] * 4), [int(source.random() < 0.7 * raw) for _ in range(4)])
    bounds = calibrator.best_conditionals()
    assert len(bounds) == 3
    for depth in (1, 2, 3, 5):
        highest = max(conditional(calibrator, step / 1000, depth) for step in range(1, 1001))
        assert highest <= bounds[min(depth, 3) - 1] + 1e-9
        assert highest == pytest.approx(bounds[min(depth, 3) - 1], abs=0.05)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.5, 1.5])
def test_values_that_are_no_probabilities_stay_within_bounds(bad: float) -> None:
    calibrator = Calibrator()
    tree = Tree((1, 2, 3), (-1, 0, 1), (0.8, bad, 0.4))
    for _ in range(10):
        calibrator.observe(tree, [1, 2, 3])
    path_probabilities = calibrator.calibrate(tree).path_probabilities
    assert 1.0 >= path_probabilities[0] >= path_probabilities[1] >= path_probabilities[2] >= 0.0


def test_the_raw_probability_that_calibrates_to_a_value() -> None:
    honest = Calibrator()
    for value in (0.0, 0.05, 0.3, 0.6, 0.97, 1.0):
        assert honest.least_raw(value) == pytest.approx(value)
    boastful = Calibrator()
    for round_ in range(200):
        boastful.observe(chain([1], [0.6]), [round_ % 2])
        boastful.observe(chain([1], [0.9]), [round_ % 2])
    assert 0.3 < boastful.least_raw(0.3) < 0.6
    assert boastful.least_raw(0.9) == 1.0
