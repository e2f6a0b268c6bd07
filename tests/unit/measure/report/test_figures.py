from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headstart.measure.bench import RequestRecord, Turn
from headstart.measure.report import Spread
from headstart.measure.report.figures import SideFigures, cell_figures
from headstart.measure.report.latency import Distribution
from headstart.measure.report.spread import percentile

CELL = {"key": "1 at once", "load": {"kind": "closed", "concurrency": 1}, "context": None}
OPEN = {"key": "1 at once", "load": {"kind": "open", "rate_per_s": 1.0, "seed": 0}, "context": None}

MakeRequest = Callable[..., RequestRecord]
MakeTurn = Callable[..., Turn]


def figures(*turns: Turn, cell: dict[str, Any] = CELL) -> SideFigures:
    found = cell_figures(cell, ["none", "heads"], turns, ()).side("heads")
    assert found is not None
    return found


def test_a_speedup_compares_within_a_repeat(make_turn: MakeTurn) -> None:
    # the machine was slow in the second repeat, for both
    side = figures(
        make_turn("none", 0, 2.0), make_turn("heads", 0, 1.0), make_turn("none", 1, 6.0), make_turn("heads", 1, 2.0)
    )
    assert side.speedup == Spread(2.5, 2.0, 3.0)
    assert side.tokens_per_s == Spread(7.5, 5.0, 10.0)


def test_it_is_a_ratio_of_sums_not_a_mean_of_ratios(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    long_one = {"num_tokens": 90}
    side = figures(
        make_turn("none", 0, 1.0, group="a"),
        make_turn("heads", 0, 0.25, group="a"),
        make_turn("none", 0, 9.0, group="b", requests=[make_request("b", **long_one)]),
        make_turn("heads", 0, 9.0, group="b", requests=[make_request("b", **long_one)]),
    )
    assert side.speedup is not None
    assert side.speedup.median == pytest.approx(10 / 9.25)  # the mean of ratios would be 2.5


def test_texts_of_other_lengths_are_compared_by_time_per_token(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    # a server whose draft path ends half-way is not twice as fast
    side = figures(
        make_turn("none", 0, 2.0, requests=[make_request(num_tokens=20)]),
        make_turn("heads", 0, 1.0, requests=[make_request(num_tokens=10, token_hash="other")]),
    )
    assert side.speedup == Spread(1.0, 1.0, 1.0)
    assert side.different == ("a",)


def test_every_text_that_differs_counts(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    wrong = [make_request(token_hash="other")]
    side = figures(
        *(make_turn("none", repeat, 1.0) for repeat in range(2)),
        *(make_turn("heads", repeat, 1.0, requests=wrong) for repeat in range(2)),
    )
    assert side.different == ("a", "a (repeat 2)")
    assert side.num_compared == 2


def test_a_text_that_one_side_lacks_is_a_difference(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    both, one = [make_request("a"), make_request("b")], [make_request("a")]
    side = figures(make_turn("none", 0, 1.0, requests=both), make_turn("heads", 0, 1.0, requests=one))
    assert side.different == ("b",)


def test_repeats_that_were_cut_short_do_not_count(make_turn: MakeTurn) -> None:
    turns = [
        make_turn(side, 0, seconds, group=group) for group in "ab" for side, seconds in (("none", 2.0), ("heads", 1.0))
    ]
    turns += [make_turn("none", 1, 50.0, group="a"), make_turn("heads", 1, 1.0, group="a")]
    assert figures(*turns).speedup == Spread(2.0, 2.0, 2.0)
    # unless there is nothing else
    assert figures(*turns[:2]).speedup == Spread(2.0, 2.0, 2.0)


def test_without_a_plain_turn_nothing_is_compared(make_turn: MakeTurn) -> None:
    side = figures(make_turn("heads", 0, 1.0))
    assert side.speedup is None
    assert side.num_compared == 0
    assert side.tokens_per_s == Spread(10.0, 10.0, 10.0)


def test_categories_are_of_the_time_that_their_requests_took(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    plain = [make_request("a", "code", end_s=3.0), make_request("b", "maths", end_s=1.0)]
    drafted = [make_request("a", "code", end_s=1.0), make_request("b", "maths", end_s=2.0)]
    side = figures(make_turn("none", 0, 4.0, requests=plain), make_turn("heads", 0, 3.0, requests=drafted))
    assert side.speedup_by_category == {"code": Spread(3.0, 3.0, 3.0), "maths": Spread(0.5, 0.5, 0.5)}


def test_in_an_open_loop_the_rate_is_given_and_waiting_is_compared(
    make_turn: MakeTurn, make_request: MakeRequest
) -> None:
    side = figures(
        make_turn("none", 0, 10.0, requests=[make_request(end_s=4.0)]),
        make_turn("heads", 0, 10.0, requests=[make_request(end_s=2.0)]),
        cell=OPEN,
    )
    assert side.speedup == Spread(2.0, 2.0, 2.0)


def test_acceptance_is_added_up(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    counts = {
        "rounds": 4, "tokens": 10, "drafted": 8, "accepted": 6,
        "drafted_by_depth": [4, 4], "reached_by_depth": [4, 3], "accepted_by_depth": [3, 3],
        "drafted_by_drafter": {"heads": 8}, "accepted_by_drafter": {"heads": 6},
    }  # fmt: skip
    shallow = {**counts, "drafted_by_depth": [4], "reached_by_depth": [4], "accepted_by_depth": [1]}
    requests = [make_request("a", "code", acceptance=counts), make_request("b", "maths", acceptance=shallow)]
    side = figures(make_turn("heads", 0, 1.0, requests=requests))
    assert side.acceptance is not None
    assert side.acceptance.mean_acceptance_length == 2.5
    assert side.acceptance.conditional == (0.5, 1.0)
    assert side.acceptance.survival == (0.5, 0.5)
    assert side.acceptance_by_category["maths"].conditional == (0.25,)


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.01, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert percentile([7.0], 0.5) == 7.0
    found = Distribution.of(reversed(values))
    assert found is not None
    assert (found.count, found.p50, found.points[0], found.points[-1]) == (100, 50.0, 1.0, 100.0)
    assert Distribution.of([]) is None


def test_waiting_times(make_turn: MakeTurn, make_request: MakeRequest) -> None:
    requests = [make_request(end_s=2.0, first_s=0.2, num_tokens=10), make_request("b", num_tokens=1)]
    latency = figures(make_turn("heads", 0, 1.0, requests=requests)).latency
    assert latency.token_s is not None
    assert latency.token_s.count == 1  # one token has no time between tokens
    assert latency.token_s.p50 == pytest.approx(0.2)
