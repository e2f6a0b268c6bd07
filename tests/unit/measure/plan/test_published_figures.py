"""Figures that are often quoted, as docs/explanation/break-even.md derives them."""

from __future__ import annotations

import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.measure.plan import DraftingSetup, Experts, Plan, Roofline, make_plan


def plan_of(acceptance: float, depth: int, pass_costs: CostCurve | Roofline, draft_cost: float) -> Plan:
    setup = DraftingSetup(
        acceptance=((acceptance,),), pass_costs=pass_costs, draft_cost_per_depth=draft_cost, max_depth=depth
    )
    return make_plan(setup, 32)


def test_deepseek_v3_one_guess_at_85_to_90_percent_gives_1_8_times() -> None:
    # one block more beside 61, and the output matrix once more; two rows cost hardly more than one
    curve = CostCurve({1: 1.0, 2: 1.01})
    low, high = (plan_of(acceptance, 1, curve, 0.03).speedup for acceptance in (0.85, 0.90))
    assert low == pytest.approx(1.78, abs=0.005)
    assert high == pytest.approx(1.83, abs=0.005)


def test_7b_beside_70b_eight_guesses_gain_2_5_times_at_90_percent_and_nothing_at_60() -> None:
    curve = CostCurve({1: 1.0, 9: 1.275})
    at_eight = plan_of(0.9, 8, curve, 0.15).depths[-1]
    assert at_eight.speedup == pytest.approx(2.5, abs=0.03)
    assert at_eight.break_even_acceptance == pytest.approx(0.60, abs=0.005)


def test_and_the_limit_of_60_percent_is_that_of_always_guessing_eight() -> None:
    curve = CostCurve({1: 1.0, 9: 1.275})
    below = plan_of(0.55, 8, curve, 0.15)
    assert below.depths[-1].speedup < 1.0
    assert below.best_depth == 2
    assert below.speedup > 1.25
    assert below.break_even_acceptance == pytest.approx(0.184, abs=0.001)


EXPERTS = Roofline(
    parameters=3e9,
    bits=4.5,
    bandwidth_bytes_per_s=936e9,
    flops_per_s=71e12,
    experts=Experts(num_experts=256, used=8, share=1.0),
)


def test_experts_with_a_draft_model_of_a_quarter_lose_though_all_is_accepted() -> None:
    plan = plan_of(1.0, 4, EXPERTS, 0.8 / 3)
    assert plan.depths[0].speedup == pytest.approx(0.89, abs=0.005)
    assert (plan.best_depth, plan.break_even_acceptance) == (0, None)


def test_experts_alone_cannot_make_a_free_and_right_guess_a_loss() -> None:
    assert all(entry.speedup > 1.0 for entry in plan_of(1.0, 16, EXPERTS, 0.0).depths)


@pytest.mark.parametrize(("tflops", "sequences"), [(71e12, 19), (142e12, 39)])
def test_a_consumer_card_with_4_bit_weights_is_full_at_some_16_to_40_sequences(tflops: float, sequences: int) -> None:
    card = Roofline(parameters=27e9, bits=4.5, bandwidth_bytes_per_s=936e9, flops_per_s=tflops)
    assert plan_of(0.9, 4, card, 0.05).pays_up_to == sequences


def test_a_data_centre_card_with_16_bit_weights_only_at_hundreds() -> None:
    card = Roofline(parameters=27e9, bits=16, bandwidth_bytes_per_s=3.35e12, flops_per_s=990e12)
    assert card.balanced_rows == pytest.approx(296, abs=1)
    assert (plan_of(0.9, 4, card, 0.05).pays_up_to or 0) > 250
