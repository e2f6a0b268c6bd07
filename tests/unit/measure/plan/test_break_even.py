"""Chains: the formula against every outcome of a round counted out, and where gain turns into loss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.errors import ConfigError
from headstart.measure.plan import DraftingSetup, break_even_acceptance, depth_figures

FREE_ROWS = CostCurve({1: 1.0, 2: 1.0})
STEEP = CostCurve({1: 2.0, 2: 2.2, 4: 3.0, 8: 5.0})


def setup_of(*acceptance: float, curve: CostCurve = FREE_ROWS, **costs: float) -> DraftingSetup:
    return DraftingSetup(
        acceptance=tuple((share,) for share in acceptance), pass_costs=curve, max_depth=len(acceptance), **costs
    )


def counted_tokens(acceptance: tuple[float, ...]) -> float:
    """Expected tokens of a round, over all ways in which guesses can be right or wrong."""
    expected = 0.0
    for outcome in itertools.product((True, False), repeat=len(acceptance)):
        probability = float(
            np.prod([share if right else 1.0 - share for share, right in zip(acceptance, outcome, strict=True)])
        )
        kept = next((depth for depth, right in enumerate(outcome) if not right), len(outcome))
        expected += probability * (kept + 1)
    return expected


def test_the_speedup_is_what_all_outcomes_of_a_round_come_to() -> None:
    acceptance = (0.9, 0.6, 0.7)
    figures = depth_figures(setup_of(*acceptance, curve=STEEP, draft_cost_per_depth=0.1, draft_cost_per_round=0.05))
    checks = (1.1, 1.3, 1.5)  # passes of 2, 3 and 4 rows; that of 3 lies between the points
    for depth, (entry, check) in enumerate(zip(figures, checks, strict=True), start=1):
        tokens = counted_tokens(acceptance[:depth])
        assert entry.mean_acceptance_length == pytest.approx(tokens)
        assert entry.check_cost == pytest.approx(check)
        assert entry.draft_cost == pytest.approx(0.05 + 0.1 * depth)
        assert entry.speedup == pytest.approx(tokens / (check + 0.05 + 0.1 * depth))


def test_a_simulated_run_takes_the_time_that_was_predicted() -> None:
    acceptance, generator = (0.8, 0.5), np.random.default_rng(7)
    predicted = depth_figures(setup_of(*acceptance, curve=STEEP, draft_cost_per_depth=0.2))[1].speedup
    tokens, seconds = 0, 0.0
    for right in generator.random((20_000, 2)) < acceptance:
        tokens += 1 + int(right[0]) + int(right[0] and right[1])
        seconds += 2.6 + 2 * 0.2 * 2.0  # a pass of three rows, and two depths at 0.2 plain passes of two seconds
    assert tokens * 2.0 / seconds == pytest.approx(predicted, rel=0.01)


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.9])
def test_one_guess_breaks_even_where_acceptance_is_its_cost(cost: float) -> None:
    # Leviathan et al., corollary 3.9
    figures = depth_figures(setup_of(0.5, draft_cost_per_depth=cost))
    assert break_even_acceptance(figures) == pytest.approx(cost)


def test_at_the_break_even_acceptance_a_chain_gains_nothing() -> None:
    for entry in depth_figures(setup_of(0.9, 0.9, 0.9, 0.9, curve=STEEP, draft_cost_per_depth=0.1)):
        assert entry.break_even_acceptance is not None
        same = depth_figures(
            setup_of(*[entry.break_even_acceptance] * entry.depth, curve=STEEP, draft_cost_per_depth=0.1)
        )
        assert same[-1].speedup == pytest.approx(1.0)


def test_nothing_breaks_even_where_a_round_costs_more_than_all_its_tokens() -> None:
    figures = depth_figures(setup_of(1.0, 1.0, draft_cost_per_depth=1.5))
    assert [entry.break_even_acceptance for entry in figures] == [None, None]
    assert break_even_acceptance(figures) is None
    assert all(entry.speedup < 1.0 for entry in figures)


def test_sequences_that_share_a_pass_have_a_plain_pass_in_common() -> None:
    curve = CostCurve({1: 1.0, 4: 1.0, 8: 3.0})
    figures = depth_figures(
        DraftingSetup(acceptance=((0.5,),), pass_costs=curve, draft_cost_per_depth=0.1, concurrency=4)
    )
    # four sequences: a plain pass takes 1, one with a guess each takes 3
    assert figures[0].check_cost == pytest.approx(3.0)
    assert figures[0].speedup == pytest.approx(1.5 / 3.1)


def test_the_last_acceptance_holds_for_deeper_guesses() -> None:
    setup = DraftingSetup(acceptance=((0.9,), (0.5,)), pass_costs=FREE_ROWS, max_depth=4)
    assert setup.chain_acceptance == (0.9, 0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("acceptance", "told"),
    [
        ((), "No acceptance"),
        (((1.2,),), "share from 0 to 1"),
        (((float("nan"),),), "share from 0 to 1"),
        (((),), "share from 0 to 1"),
        (((0.2, 0.4),), "cannot rise"),
        (((0.6, 0.5),), "give the differences"),
    ],
)
def test_what_is_no_acceptance_is_refused(acceptance: tuple[tuple[float, ...], ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        DraftingSetup(acceptance=acceptance, pass_costs=FREE_ROWS)


@pytest.mark.parametrize(
    "wrong",
    [{"draft_cost_per_depth": -0.1}, {"draft_cost_per_round": float("inf")}, {"concurrency": 0}, {"max_depth": 65}],
)
def test_what_is_no_cost_or_count_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DraftingSetup(acceptance=((0.5,),), pass_costs=FREE_ROWS, **wrong)  # type: ignore[arg-type]
