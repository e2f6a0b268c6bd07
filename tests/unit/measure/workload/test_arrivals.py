from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from headstart.errors import ConfigError
from headstart.measure.workload import Ask, ClosedLoop, Feed, OpenLoop, Prompt


def asks(count: int) -> list[Ask]:
    return [Ask(prompt=Prompt(id=str(n), category="c", messages=(("user", "x"),))) for n in range(count)]


def taken(feed: Feed, now_s: float, num_active: int) -> tuple[float, str] | None:
    found = feed.take(now_s, num_active)
    return None if found is None else (found[0], found[1].name)


def test_a_closed_loop_keeps_so_many_at_work() -> None:
    feed = Feed(asks(3), ClosedLoop(2))
    assert taken(feed, 0.0, 0) == (0.0, "0")
    assert taken(feed, 0.5, 1) == (0.5, "1")
    assert taken(feed, 1.0, 2) is None
    assert taken(feed, 2.0, 1) == (2.0, "2")
    assert not feed


def test_an_open_loop_does_not_wait_for_answers_and_counts_from_the_coming() -> None:
    load = OpenLoop(2.0, seed=5)
    first, second, third = load.times_s(3)
    feed = Feed(asks(3), load)
    assert first == 0.0  # a run begins with its first request
    assert taken(feed, 0.0, 0) == (0.0, "0")
    assert taken(feed, second / 2, 0) is None
    assert feed.next_due_s() == second
    # all are late, and whoever is late began to wait when the request came
    assert taken(feed, third, 99) == (second, "1")
    assert taken(feed, third, 99) == (third, "2")
    assert feed.next_due_s() is None


def test_a_follow_up_comes_at_once() -> None:
    feed = Feed(asks(2), ClosedLoop(1))
    feed.take(0.0, 0)
    (extra,) = asks(1)
    feed.add_follow_up(3.0, extra)
    assert taken(feed, 4.0, 0) == (3.0, "0")
    assert taken(feed, 4.0, 0) == (4.0, "1")


def test_arrivals_are_of_the_rate_irregular_and_the_same_for_a_seed() -> None:
    times = OpenLoop(4.0, seed=1).times_s(2000)
    assert times == OpenLoop(4.0, seed=1).times_s(2000)
    assert times != OpenLoop(4.0, seed=2).times_s(2000)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.25, rel=0.1)
    assert statistics.pstdev(gaps) == pytest.approx(0.25, rel=0.1)  # of an exponential law


def test_loads_out_of_range() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        ClosedLoop(0)
    with pytest.raises(ConfigError, match="positive"):
        OpenLoop(0.0)
