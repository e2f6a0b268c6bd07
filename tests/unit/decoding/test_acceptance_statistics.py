from __future__ import annotations

import json

import pytest

from headstart.decoding.statistics import AcceptanceStatistics
from headstart.decoding.trees import chain
from headstart.records import EMPTY_TREE, Completion, Tree

CHAIN = chain([1, 2, 3], [0.5, 0.5, 0.5])
# root -> 1 -> 3, root -> 2
FORK = Tree((1, 2, 3), (-1, -1, 0), (0.5, 0.4, 0.2))


def recorded(*rounds: tuple[Tree, int, int]) -> AcceptanceStatistics:
    statistics = AcceptanceStatistics()
    for tree, num_kept, num_tokens in rounds:
        statistics.record(tree, num_kept, num_tokens)
    return statistics


def test_every_figure_on_a_worked_example() -> None:
    statistics = recorded((EMPTY_TREE, 0, 1), (CHAIN, 0, 1), (CHAIN, 2, 3), (CHAIN, 3, 4), (FORK, 1, 2))
    assert statistics.rounds == 5
    assert statistics.tokens == 11
    assert statistics.drafted == 12
    assert statistics.accepted == 6
    assert statistics.drafted_rounds == 4
    assert statistics.drafted_by_depth == [4, 4, 3]
    assert statistics.reached_by_depth == [4, 3, 2]
    assert statistics.accepted_by_depth == [3, 2, 1]
    assert statistics.mean_acceptance_length == 11 / 5
    assert statistics.acceptance_rate == 6 / 12
    assert statistics.conditional_acceptance == (3 / 4, 2 / 3, 1 / 2)
    assert statistics.survival == pytest.approx((3 / 4, 1 / 2, 1 / 4))


def test_before_the_first_round_every_figure_is_zero() -> None:
    statistics = AcceptanceStatistics()
    assert statistics.mean_acceptance_length == statistics.acceptance_rate == 0.0
    assert statistics.conditional_acceptance == statistics.survival == ()


def test_a_depth_never_reached_has_no_acceptance() -> None:
    assert recorded((CHAIN, 0, 1)).survival == (0.0, 0.0, 0.0)


def test_a_round_cut_short_by_a_stop_counts_the_tokens_that_stayed() -> None:
    statistics = recorded((CHAIN, 2, 2))
    assert statistics.mean_acceptance_length == 2.0
    # nobody asked whether the third guess was right
    assert statistics.reached_by_depth == [1, 1, 0]
    assert statistics.conditional_acceptance == (1.0, 1.0, 0.0)


def test_merging_is_recording_all_rounds_in_one() -> None:
    first, second = [(CHAIN, 2, 3), (EMPTY_TREE, 0, 1)], [(chain([1] * 5, [0.9] * 5), 5, 6), (FORK, 2, 3)]
    for left, right in ((first, second), (second, first)):
        merged = recorded(*left)
        merged.merge(recorded(*right))
        assert vars(merged) == vars(recorded(*left, *right))


def test_credit_is_merged_as_well() -> None:
    first, second = AcceptanceStatistics(), AcceptanceStatistics()
    first.credit("heads", 5, 2)
    second.credit("heads", 3, 1)
    second.credit("lookup", 1, 0)
    first.merge(second)
    assert first.drafted_by_drafter == {"heads": 8, "lookup": 1}
    assert first.accepted_by_drafter == {"heads": 3, "lookup": 0}


def test_the_counts_of_a_text_are_those_that_made_it() -> None:
    counts = recorded((CHAIN, 2, 3), (EMPTY_TREE, 0, 1), (FORK, 2, 3))
    counts.credit("heads", 6, 4)
    completion = Completion(
        text="", token_ids=tuple(range(7)), finish_reason="length", prompt_tokens=1, seed=0, first_round_tokens=1,
        generation_s=1.0, prefill_s=1.0, drafter="heads",
        **{name: value for name, value in counts.to_json().items() if name != "tokens"},
    )  # fmt: skip
    assert vars(AcceptanceStatistics.of(completion)) == vars(counts)
    both = AcceptanceStatistics.total([counts, AcceptanceStatistics.of(completion)])
    assert both.tokens == 14
    assert both.accepted_by_drafter == {"heads": 8}


def test_counts_come_back_from_json() -> None:
    counts = recorded((CHAIN, 2, 3), (FORK, 0, 1))
    counts.credit("lookup", 6, 2)
    again = AcceptanceStatistics.from_json(json.loads(json.dumps(counts.to_json())))
    assert vars(again) == vars(counts)
    again.merge(counts)
    assert counts.rounds == 2
