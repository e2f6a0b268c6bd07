from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.decoding.lookup import LookupDrafter
from headstart.decoding.trees import children, conditional_probabilities, path_tokens, sanitise
from headstart.errors import ConfigError
from headstart.records import EMPTY_TREE, SamplingParams, Tree

PARAMS = SamplingParams()
SLOTS = TrunkSlots(np.zeros(0, dtype=np.int32), (), 0)  # what it reads lies elsewhere


def propose(drafter: LookupDrafter, text: Sequence[int], max_nodes: int = 16, max_depth: int = 16) -> Tree:
    state = drafter.open(text, PARAMS, seed=0)
    return drafter.propose([DraftRequest(state, max_nodes, max_depth)])[0]


def test_nothing_is_proposed_where_nothing_was_seen_before() -> None:
    assert propose(LookupDrafter(), [1, 2, 3, 4]) == EMPTY_TREE
    assert propose(LookupDrafter(), []) == EMPTY_TREE


def test_one_earlier_occurrence_gives_the_chain_that_followed_it() -> None:
    tree = propose(LookupDrafter(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3], max_nodes=5)
    assert tree.tokens == (4, 5, 6, 7, 8)
    assert tree.parents == (-1, 0, 1, 2, 3)


def test_the_prompt_and_what_was_written_are_one_text() -> None:
    drafter = LookupDrafter()
    state = drafter.open([1, 2, 3, 4, 5, 1], PARAMS, seed=0)
    drafter.extend(state, [2, 3])
    assert drafter.propose([DraftRequest(state, 2, 2)])[0].tokens == (4, 5)


def test_a_text_is_read_when_guesses_are_asked_for() -> None:
    drafter = LookupDrafter(remember=True)
    drafter.close(drafter.open([7, 8], PARAMS, seed=0))
    asked, left_alone = (drafter.open([1, 2, 3, 4, 5, 1], PARAMS, seed=0) for _ in range(2))
    assert drafter.backlog(left_alone, SLOTS) == 6
    for token in (2, 3, 4, 1, 2):
        drafter.extend(asked, [token])
        drafter.extend(left_alone, [token])
        drafter.propose([DraftRequest(asked, 4, 4)])
        assert drafter.backlog(asked, SLOTS) == 0
    assert drafter.backlog(left_alone, SLOTS) == 10  # what was told last is the usual work of a round
    trees = drafter.propose([DraftRequest(asked, 8, 4), DraftRequest(left_alone, 8, 4)])
    assert trees[0] == trees[1] != EMPTY_TREE
    assert drafter.backlog(left_alone, SLOTS) == 0


def test_a_period_goes_on_beyond_the_end_of_the_text() -> None:
    tree = propose(LookupDrafter(), [1, 2, 3] * 4, max_nodes=8)
    assert tree.tokens == (1, 2, 3, 1, 2, 3, 1, 2)


def test_the_longest_match_decides() -> None:
    # after "5 6" came 7, after "4 5 6" came 8
    assert propose(LookupDrafter(), [4, 5, 6, 8, 1, 5, 6, 7, 2, 4, 5, 6]).tokens[0] == 8


def test_longer_matches_are_trusted_more() -> None:
    short = propose(LookupDrafter(), [1, 2, 3, 4, 9, 3])
    long = propose(LookupDrafter(), [1, 2, 3, 4, 9, 1, 2, 3])
    assert short.tokens[0] == long.tokens[0] == 4
    assert short.path_probabilities[0] < long.path_probabilities[0]


def test_several_continuations_branch_by_count() -> None:
    text = [1, 2, 3] * 3 + [1, 2, 4] * 1 + [1, 2]
    tree = propose(LookupDrafter(min_match=2), text, max_nodes=16, max_depth=1)
    assert tree.tokens == (3, 4)
    assert tree.parents == (-1, -1)
    first, second = tree.path_probabilities
    assert first == pytest.approx(3 * second)


def test_of_equally_frequent_continuations_the_latest_comes_first() -> None:
    assert propose(LookupDrafter(), [1, 2, 3, 1, 2, 4, 1, 2], max_depth=1).tokens[:2] == (4, 3)
    assert propose(LookupDrafter(), [1, 2, 4, 1, 2, 3, 1, 2], max_depth=1).tokens[:2] == (3, 4)


def test_a_shorter_context_offers_what_the_longest_does_not_know() -> None:
    # "9 2" was followed by 3 alone, but "2" by 5 too
    tree = propose(LookupDrafter(), [9, 2, 3, 8, 2, 5, 7, 2, 5, 6, 9, 2], max_depth=1)
    assert tree.tokens == (3, 5)


def test_bounds_of_the_request_and_of_the_setting_hold() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2]
    assert len(propose(LookupDrafter(), text, max_nodes=3)) == 3
    tree = propose(LookupDrafter(), text, max_depth=2)
    assert max(len(path_tokens(tree, node)) for node in range(len(tree))) == 2
    assert propose(LookupDrafter(min_match=2), text) != EMPTY_TREE
    assert propose(LookupDrafter(min_match=3), text) == EMPTY_TREE


def test_trees_are_valid_best_first_and_shares_of_one() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 3, 1, 2, 3, 4, 2, 1, 2, 1] * 3
    tree = propose(LookupDrafter(), text, max_nodes=40)
    assert sanitise(tree, vocab_size=5, max_nodes=40, max_depth=16) is tree
    assert list(tree.path_probabilities) == sorted(tree.path_probabilities, reverse=True)
    conditionals = conditional_probabilities(tree)
    assert all(sum(conditionals[node] for node in siblings) < 1.0 for siblings in children(tree))


def test_sequences_do_not_see_each_other() -> None:
    drafter = LookupDrafter()
    drafter.open([1, 2, 3], PARAMS, seed=0)
    assert propose(drafter, [1, 2]) == EMPTY_TREE


def test_requests_are_answered_in_order() -> None:
    drafter = LookupDrafter()
    states = [drafter.open([token, token + 1, token], PARAMS, seed=0) for token in (1, 5, 3)]
    trees = drafter.propose([DraftRequest(state, 1, 1) for state in states])
    assert [tree.tokens for tree in trees] == [(2,), (6,), (4,)]


def finish(drafter: LookupDrafter, prompt: Sequence[int], output: Sequence[int]) -> None:
    state = drafter.open(prompt, PARAMS, seed=0)
    drafter.extend(state, output)
    drafter.close(state)


def test_earlier_outputs_are_remembered_on_request_but_not_prompts() -> None:
    for remember, expected in ((True, (3, 4)), (False, ())):
        drafter = LookupDrafter(remember=remember)
        finish(drafter, [8, 9], [1, 2, 3, 4])
        assert propose(drafter, [1, 2]).tokens == expected
        assert propose(drafter, [8]) == EMPTY_TREE


def test_no_match_runs_from_one_output_into_the_next() -> None:
    drafter = LookupDrafter(remember=True)
    finish(drafter, [], [1, 2])
    finish(drafter, [], [3, 4])
    assert propose(drafter, [1, 2]) == EMPTY_TREE
    assert propose(drafter, [3]).tokens == (4,)


def test_an_output_that_ends_is_seen_by_sequences_that_run() -> None:
    drafter = LookupDrafter(remember=True)
    running = drafter.open([1], PARAMS, seed=0)
    finish(drafter, [], [1, 2, 3, 4])
    drafter.extend(running, [2])
    assert drafter.propose([DraftRequest(running, 4, 4)])[0].tokens == (3, 4)


def test_the_sequences_own_text_wins_among_equal_matches() -> None:
    drafter = LookupDrafter(remember=True)
    finish(drafter, [], [1, 2, 3])
    assert propose(drafter, [1, 2, 4, 1, 2], max_nodes=1).tokens == (4,)
    # but a longer match elsewhere says more
    assert propose(drafter, [2, 4, 1, 2], max_nodes=1).tokens == (3,)


def test_memory_is_bounded_and_the_latest_outputs_stay() -> None:
    drafter = LookupDrafter(remember=True, max_remembered_tokens=20)
    for first in range(0, 100, 5):
        finish(drafter, [], range(first, first + 5))
    assert propose(drafter, [95]).tokens == (96, 97, 98, 99)
    assert propose(drafter, [90]).tokens == (91, 92, 93, 94)
    assert propose(drafter, [70]) == EMPTY_TREE
    finish(drafter, [], range(200, 300))
    assert propose(drafter, [298]).tokens == (299,)
    assert propose(drafter, [280]) == EMPTY_TREE


def test_a_sequence_that_runs_survives_the_change_of_generations() -> None:
    drafter = LookupDrafter(remember=True, max_remembered_tokens=8)
    running = drafter.open([1], PARAMS, seed=0)
    before: tuple[int, ...] = ()
    for first in (10, 20, 30, 40):
        finish(drafter, [], range(first, first + 4))
        # what was read stays readable until the sequence goes on, even when its generation has just been dropped
        assert drafter.propose([DraftRequest(running, 4, 4)])[0].tokens == before
        drafter.extend(running, [first, first + 1])
        before = (first + 2, first + 3)
        assert drafter.propose([DraftRequest(running, 4, 4)])[0].tokens == before


def test_same_texts_same_trees() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 3, 1, 2, 3, 4, 2, 1] * 4
    assert propose(LookupDrafter(), text) == propose(LookupDrafter(), text)


@pytest.mark.parametrize("settings", [{"min_match": 0}, {"remember": True, "max_remembered_tokens": 1}])
def test_settings_out_of_range_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LookupDrafter(**settings)  # type: ignore[arg-type]
