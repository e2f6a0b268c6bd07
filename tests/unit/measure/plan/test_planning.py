"""A whole plan: what is best, what would change it, and how many sequences it bears."""

from __future__ import annotations

import json

import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.measure.plan import DraftingSetup, Roofline, make_plan

DENSE = Roofline(parameters=1e9, bits=8, bandwidth_bytes_per_s=1e10, flops_per_s=3.2e11)  # in balance at 16 rows


def setup_of(pass_costs: CostCurve | Roofline, draft_cost: float = 0.1) -> DraftingSetup:
    return DraftingSetup(
        acceptance=((0.8,), (0.7,), (0.2,)), pass_costs=pass_costs, draft_cost_per_depth=draft_cost, max_depth=3
    )


def test_the_best_depth_has_the_highest_speedup() -> None:
    plan = make_plan(setup_of(DENSE), 8)
    speedups = [entry.speedup for entry in plan.depths]
    assert plan.best_depth == 2
    assert plan.speedup == max(speedups) == speedups[1]


def test_where_nothing_pays_the_plan_is_plain_decoding() -> None:
    plan = make_plan(setup_of(CostCurve({1: 1.0})), 8)
    assert (plan.best_depth, plan.speedup, plan.by_concurrency) == (0, 1.0, ())
    assert all(entry.speedup < 1.0 for entry in plan.depths)
    assert plan.break_even_acceptance is None


def test_it_pays_up_to_the_last_number_of_sequences_before_it_does_not() -> None:
    plan = make_plan(setup_of(DENSE), 8)
    assert plan.pays_up_to is not None

    def pays(concurrency: int) -> bool:
        shared = DraftingSetup(
            acceptance=((0.8,), (0.7,), (0.2,)),
            pass_costs=DENSE,
            draft_cost_per_depth=0.1,
            max_depth=3,
            concurrency=concurrency,
        )
        return make_plan(shared, 8).best_depth > 0

    assert all(pays(number) for number in range(1, plan.pays_up_to + 1))
    assert not pays(plan.pays_up_to + 1)


def test_a_machine_on_which_drafting_never_pays_bears_none() -> None:
    assert make_plan(setup_of(DENSE, draft_cost=1.0), 8).pays_up_to == 0


def test_nothing_is_said_of_more_sequences_than_the_curve_has_rows_for() -> None:
    plan = make_plan(setup_of(CostCurve({1: 1.0, 9: 1.2})), 8)
    assert [entry.concurrency for entry in plan.by_concurrency] == [1, 2, 4]
    assert make_plan(setup_of(CostCurve({1: 1.0, 2: 1.0})), 8).by_concurrency == ()


def test_figures_that_are_off_move_the_speedup_their_way() -> None:
    plan = make_plan(setup_of(CostCurve({1: 1.0, 4: 1.3})), 8)
    by_change = {variation.change: variation for variation in plan.variations}
    for worse in ("acceptance 0.05 lower", "drafting 2 times as dear", "further rows 2 times as dear"):
        assert by_change[worse].speedup < plan.speedup
    for better in ("acceptance 0.05 higher", "drafting 2 times as cheap", "further rows 2 times as cheap"):
        assert by_change[better].speedup > plan.speedup
    dear_rows = by_change["further rows 2 times as dear"]
    assert dear_rows.speedup_unadapted == pytest.approx(2.36 / (1.4 + 0.2))  # v(3) is 1.2 by the curve


def test_the_depth_adapts_where_that_helps() -> None:
    setup = DraftingSetup(
        acceptance=((0.9,), (0.3,)), pass_costs=CostCurve({1: 1.0, 2: 1.0}), draft_cost_per_depth=0.14, max_depth=2
    )
    plan = make_plan(setup, 8)
    assert plan.best_depth == 2
    dear = next(each for each in plan.variations if each.change == "drafting 2 times as dear")
    assert dear.best_depth == 1
    assert dear.speedup > dear.speedup_unadapted


def test_a_tree_is_planned_only_from_second_guesses() -> None:
    assert make_plan(setup_of(DENSE), 8).tree is None
    setup = DraftingSetup(acceptance=((0.6, 0.3),), pass_costs=DENSE, max_depth=2)
    document = make_plan(setup, 8).to_json()
    assert document["tree"]["nodes"] == len(document["tree"]["paths"])
    assert [0] in document["tree"]["paths"]
    assert [1] in document["tree"]["paths"]
    json.dumps(document, allow_nan=False)
