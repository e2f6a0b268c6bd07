from __future__ import annotations

import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.policy import max_useful_nodes
from headstart.engine.draft_cost import DraftCost, DraftCosts


def observed(*pairs: tuple[int, float]) -> DraftCost:
    cost = DraftCost()
    for depth, seconds in pairs:
        cost.observe(depth, seconds)
    return cost


def test_drafting_is_thought_free_until_it_is_seen():
    assert DraftCost().line == (0.0, 0.0)


def test_a_drafter_that_takes_a_pass_for_each_depth():
    cost = observed(*[(depth, 0.002 * depth) for depth in (8, 3, 5, 1, 6, 4, 7, 2)])
    assert cost.cost(1) == pytest.approx(0.002, rel=0.01)
    assert cost.cost(16) == pytest.approx(0.032, rel=0.01)


def test_one_depth_alone_is_taken_to_cost_in_proportion():
    assert observed(*[(6, 0.012)] * 20).cost(2) == pytest.approx(0.004, rel=0.25)


def test_a_drafter_that_takes_as_long_however_deep_it_goes():
    cost = observed(*[(depth, 0.0001) for depth in (8, 3, 5, 1, 6, 4, 7, 2) * 3])
    assert cost.cost(2) == pytest.approx(0.0001, rel=0.3)
    assert cost.cost(8) == pytest.approx(0.0001, rel=0.3)


def test_a_single_long_wait_counts_little():
    usual = [(depth, 0.002 * depth) for depth in (4, 2, 6, 3, 5)] * 4
    assert observed(*usual, (4, 1.0)).cost(4) < 1.3 * observed(*usual).cost(4)


def test_what_has_changed_is_learnt():
    assert observed(*[(4, 0.002)] * 30, *[(4, 0.01)] * 40).cost(4) == pytest.approx(0.01, rel=0.15)


def test_a_dear_depth_makes_chains_short_instead_of_none():
    """A model that takes a fifth of a pass for each depth pays for a few of them, not for sixteen."""
    curve = CostCurve({1: 0.010, 32: 0.012})
    by_depth = max_useful_nodes([0.6], 1, 1, curve, 17, 0.0, 0.002)
    assert by_depth in (2, 3)
    assert max_useful_nodes([0.6], 1, 1, curve, 17, 16 * 0.002) == 0
    assert max_useful_nodes([0.6], 1, 1, curve, 17, 0.0, 0.020) == 0


def test_reading_what_was_missed_is_not_taken_for_the_cost_of_drafting():
    costs = DraftCosts()
    costs.observe(3, 1, 400, 1.0)  # the first text of all: how much of it was reading cannot be told
    assert not costs.of(1).is_known
    for depth in (1, 2, 3, 4) * 5:
        costs.observe(depth, 1, 0, 0.002 + 0.001 * depth)
    for backlog in (100, 300, 50):
        costs.observe(2, 1, backlog, 0.004 + 0.0001 * backlog)
    assert costs.of(1).cost(2) == pytest.approx(0.004, rel=0.1)
    assert costs.of(1).usual == pytest.approx(0.0045, rel=0.1)
    assert costs.reading_s(200) == pytest.approx(0.02, rel=0.1)
    assert costs.reading_s(0) == 0.0


def test_a_few_tokens_say_little_of_what_a_long_text_takes_to_read():
    """Reading two tokens takes as long as reading eight, which is no reason to leave a prompt unread."""
    costs = DraftCosts()
    for _ in range(10):
        costs.observe(2, 1, 0, 0.001)
    costs.observe(2, 1, 500, 0.001 + 500 * 0.00002)
    for _ in range(3):
        costs.observe(2, 1, 2, 0.001 + 0.0004)
    assert costs.reading_s(500) == pytest.approx(0.01, rel=0.3)


def test_batches_of_other_sizes_have_costs_of_their_own():
    costs = DraftCosts()
    for _ in range(50):
        costs.observe(2, 1, 0, 0.001)
        costs.observe(2, 16, 0, 0.008)
    assert costs.of(1).usual == pytest.approx(0.001)
    assert costs.of(20).usual == pytest.approx(0.008, rel=0.02)


def test_a_larger_batch_is_thought_to_cost_what_its_parts_would():
    costs = DraftCosts()
    assert not costs.of(16).is_known
    for _ in range(10):
        costs.observe(2, 1, 0, 0.001)
    assert costs.of(16).usual == pytest.approx(0.016)
    assert costs.of(4).cost(2) == pytest.approx(0.004, rel=0.01)
    costs.observe(2, 16, 0, 0.004)
    assert costs.of(16).usual < 0.016
    assert costs.of(1).usual == pytest.approx(0.001)
