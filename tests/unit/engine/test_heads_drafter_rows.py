"""What heads that draft have run of a text, and what they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.engine.cache import PageAccounts
from headstart.engine.heads_drafter import HeadsDrafter
from headstart.records import SamplingParams, Tree
from headstart.runtime.protocol import PAGE_TOKENS
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_heads
from headstart.testing.toy_trunk import ToyTrunk


class Books:
    """One sequence's pages and tokens, with a trunk that is said to have run all but the root."""

    def __init__(self, drafter: HeadsDrafter, prompt: Sequence[int], accounts: PageAccounts | None = None) -> None:
        self.drafter, self.tokens = drafter, list(prompt)
        self.state = drafter.open(prompt, SamplingParams(), 0)
        self.accounts = accounts or PageAccounts(64)
        self.pages = self.accounts.open(self.tokens)

    def slots(self, committed: int | None = None) -> TrunkSlots:
        assert self.accounts.reserve(self.pages, len(self.tokens) - self.pages.committed)
        committed = len(self.tokens) - 1 if committed is None else committed
        return TrunkSlots(self.pages.array.copy(), list(self.pages.stamps), committed)

    def request(self, committed: int | None = None) -> DraftRequest:
        return DraftRequest(self.state, 4, 4, 0.0625, 0.25, self.slots(committed))

    def backlog(self) -> int:
        return self.drafter.backlog(self.state, self.slots())

    def tell(self, *tokens: int) -> None:
        self.tokens += tokens
        self.drafter.extend(self.state, tokens)


class RecordingHeads:
    """Heads that guess nothing."""

    max_depth, follows_text, recurrent = 3, True, True

    def __init__(self) -> None:
        self.runs: list[list[tuple[int, list[int], int]]] = []  # first, tokens, max_nodes
        self.last: Sequence = ()

    def draft(self, requests):
        self.last = requests
        self.runs.append([(request.first, request.tokens.tolist(), request.max_nodes) for request in requests])
        return [Tree()] * len(requests)


def recorded(prompt: Sequence[int], **config) -> tuple[RecordingHeads, HeadsDrafter, Books]:
    heads = RecordingHeads()
    drafter = make_toy_heads(heads, ToyTrunk(VOCAB_SIZE), **config)
    return heads, drafter, Books(drafter, prompt)


def test_what_is_behind_is_run_when_guesses_are_asked_for():
    heads, drafter, books = recorded([7, 8, 9])
    assert books.backlog() == 3
    books.tell(1)
    drafter.propose([books.request()])
    assert heads.runs.pop() == [(0, [7, 8, 9, 1], 4)]
    books.tell(2, 3)
    assert books.backlog() == 0
    books.tell(4)
    assert books.backlog() == 2
    drafter.propose([books.request()])
    assert heads.runs.pop() == [(4, [2, 3, 4], 4)]
    drafter.propose([books.request()])  # asked again, as after a pass that failed
    assert heads.runs.pop() == [(6, [4], 4)]
    assert drafter.propose([]) == heads.runs == []


def test_nothing_is_run_before_the_trunk_has_run_what_it_needs():
    heads, drafter, books = recorded(range(20))
    assert drafter.propose([books.request(committed=18)]) == [Tree()]
    assert heads.runs == []
    drafter.propose([books.request(committed=19)])
    assert heads.runs == [[(0, [*range(20)], 4)]]


def test_a_long_text_is_caught_up_with_in_parts_and_no_one_waits_for_it():
    heads, drafter, long = recorded(range(40), catch_up_rows=15)
    short = Books(drafter, [5, 6])
    for first, num_rows in ((0, 13), (13, 14), (27, 13)):
        drafter.propose([long.request(), short.request()])
        reached = 4 if first == 27 else 0
        assert heads.runs.pop()[::-1] == [
            (first, [*range(first, first + num_rows)], reached),
            (0, [5, 6], 4) if first == 0 else (1, [6], 4),
        ]


@pytest.mark.parametrize("reopened", [False, True])
def test_rows_are_run_anew_if_their_pages_were_given_back(reopened):
    heads, drafter, books = recorded(range(20))
    drafter.propose([books.request()])
    if reopened:
        books.accounts.close(books.pages)
        books.pages = books.accounts.open(books.tokens)
    books.tell(3)
    drafter.propose([books.request()])
    assert heads.runs.pop() == [(0, [*range(20), 3], 4) if reopened else (20, [3], 4)]


def test_only_the_rows_of_an_exchanged_page_and_after_are_run_anew():
    heads, drafter, books = recorded(range(40))
    drafter.propose([books.request()])
    books.pages.stamps[1] += 1000
    drafter.propose([books.request()])
    assert heads.runs.pop() == [(16, [*range(16, 40)], 4)]


def test_rows_that_another_text_has_run_are_not_run_again():
    heads, drafter, books = recorded(range(40))
    drafter.propose([books.request()])
    books.accounts.commit(books.pages, 39, books.tokens)
    later = Books(drafter, [*range(32), 7, 8], books.accounts)  # shares two pages
    assert later.backlog() == 2
    drafter.propose([later.request()])
    assert heads.runs == [[(0, [*range(40)], 4)], [(32, [7, 8], 4)]]
    later.tell(9)
    drafter.propose([later.request()])
    assert heads.runs.pop() == [(34, [9], 4)]


def test_rows_of_a_shared_page_are_run_if_no_text_has_run_them_all():
    _, drafter, books = recorded(range(40), catch_up_rows=20)
    drafter.propose([books.request()])  # a page and four rows
    books.accounts.commit(books.pages, 39, books.tokens)
    later = Books(drafter, [*range(32), 7, 8], books.accounts)
    assert later.backlog() == 18
    books.accounts.close(books.pages)
    books.accounts.close(later.pages)
    other = books.accounts.open([50])
    assert books.accounts.reserve(other, 64 * PAGE_TOKENS)  # every page is someone else's now
    books.accounts.close(other)
    assert Books(drafter, [*range(32), 7, 8], books.accounts).backlog() == 34


def test_heads_that_read_no_text_guess_at_once():
    heads, drafter, books = recorded(range(600))
    heads.follows_text = False
    assert books.backlog() == 0
    drafter.propose([books.request()])
    assert heads.runs == [[(599, [599], 4)]]


def test_requests_carry_the_settings():
    heads, drafter, books = recorded([1, 2], breadth=7, max_depth=2)
    drafter.propose([books.request()])
    (request,) = heads.last
    assert (request.breadth, request.max_depth, request.min_parent_probability) == (7, 2, 0.25)
    assert request.chooser is None
    assert request.min_path_probability == 0.0625
    assert request.page_table.dtype == request.tokens.dtype == np.int32
    drafter.propose([DraftRequest(books.state, 1, 1, trunk_slots=books.request().trunk_slots)])
    (request,) = heads.last
    assert (request.max_nodes, request.max_depth, request.min_parent_probability) == (1, 1, 0.0)


def test_where_depth_costs_no_pass_only_the_user_s_threshold_counts():
    heads, drafter, books = recorded([1, 2])
    for recurrent, expected in ((True, 0.25), (False, 0.125)):
        heads.recurrent = recurrent
        drafter.propose([replace(books.request(), min_confidence=0.125)])
        assert heads.last[0].min_parent_probability == expected
    drafter.propose([replace(books.request(), min_confidence=0.5)])
    assert heads.last[0].min_parent_probability == 0.5
