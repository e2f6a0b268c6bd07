from __future__ import annotations

import math

import numpy as np
import pytest

from headstart.measure.check.tolerance import find_tolerance, pair_errors

SETTINGS = {"logit_spread": 3.0, "num_layers": 30, "activation_bits": 16, "num_places": 400, "false_alarm": 1e-3}


def errors(scale: float, count: int = 60, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).laplace(0.0, scale, count).tolist()


def test_it_follows_the_errors_that_were_measured():
    small, large = (find_tolerance(errors(scale), **SETTINGS) for scale in (0.001, 0.01))
    assert small.basis == large.basis == "measured"
    assert large.margin == pytest.approx(10 * small.margin, rel=0.02)
    assert small.scale == pytest.approx(0.001, rel=0.4)
    assert small.is_same_model
    assert large.is_same_model


def test_hardly_any_error_of_a_run_exceeds_it():
    num_runs, exceeded = 200, 0
    for seed in range(num_runs):
        tolerance = find_tolerance(errors(0.01, seed=seed), **{**SETTINGS, "false_alarm": 0.01})
        exceeded += max(map(abs, errors(0.01, 400, seed=seed + 10_000))) > tolerance.margin
    assert exceeded <= 0.05 * num_runs  # 1 % if the scale were known; it is estimated from 60 errors


def test_a_few_places_that_are_wrong_do_not_hide_themselves():
    clean, spoilt = errors(0.01), errors(0.01)
    spoilt[:10] = [5.0] * 10
    assert find_tolerance(spoilt, **SETTINGS).margin < 2 * find_tolerance(clean, **SETTINGS).margin


def test_coarse_logits_that_mostly_agree_have_a_step():
    # bfloat16 of about 20: nothing, or 1/8
    coarse = [0.0, 1e-7] * 22 + [0.125, -0.125, 0.125, 0.25]
    tolerance = find_tolerance(coarse, **SETTINGS)
    assert tolerance.step == 0.125
    assert 0.125 < tolerance.margin < 0.5
    assert find_tolerance(errors(0.01), **SETTINGS).step == 0.0


def test_an_engine_that_differs_from_itself_sets_the_tolerance():
    equal, coarse = [0.0] * 40, [0.0] * 30 + [0.125] * 10
    assert find_tolerance(equal, **SETTINGS).margin < 1e-4
    assert find_tolerance(equal, own_errors=coarse, **SETTINGS).margin > 0.125
    assert find_tolerance(equal, own_errors=coarse[-10:], **SETTINGS).margin < 1e-4  # too few to say


def test_own_margins_count_if_there_are_enough():
    few, many = (find_tolerance(errors(0.01), own_margins=[0.0, 0.2] * count, **SETTINGS) for count in (4, 20))
    assert few.own_margin is None
    assert few.slip == pytest.approx(2 * few.scale)
    assert many.slip == pytest.approx(0.2 + many.scale)


def test_what_arithmetic_cannot_explain_is_another_model():
    assert not find_tolerance(errors(0.2), **SETTINGS).is_same_model
    assert find_tolerance(errors(0.2), **{**SETTINGS, "activation_bits": 8}).is_same_model
    assert not find_tolerance(errors(1.0), **{**SETTINGS, "activation_bits": 8}).is_same_model


def test_without_measurements_it_is_the_bound():
    tolerance = find_tolerance([], **SETTINGS)
    assert (tolerance.basis, tolerance.margin) == ("bound", tolerance.largest)
    deeper = find_tolerance([], **{**SETTINGS, "num_layers": 120})
    assert deeper.deviation == pytest.approx(2 * tolerance.deviation)
    coarser = find_tolerance([], **{**SETTINGS, "activation_bits": 8})
    assert coarser.deviation == pytest.approx(4 * tolerance.deviation)


def test_errors_are_of_differences():
    # a constant that all log-probabilities of a place share falls out
    theirs = [("a", -0.5), ("b", -1.0), ("c", -2.0), ("d", -2.5), ("e", -3.0)]
    ours = [value + 0.25 for _, value in theirs]
    assert pair_errors(theirs, ours) == pytest.approx([0.0, 0.0])
    ours[0] += 0.125
    assert pair_errors(theirs, ours) == pytest.approx([-0.125, 0.0])
    assert pair_errors(theirs[:2], [-0.5, -math.inf]) == []
