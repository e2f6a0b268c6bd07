"""Orders that are computed place by place."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from headstart.train.corpus.permutation import permuted


@pytest.mark.parametrize("size", [*range(1, 40), 63, 64, 65, 255, 256, 257, 1000, 4097])
def test_every_number_comes_once(size: int) -> None:
    assert sorted(permuted(np.arange(size), size, "some key").tolist()) == list(range(size))


def test_a_place_does_not_depend_on_what_else_is_asked() -> None:
    whole = permuted(np.arange(1000), 1000, "a")
    places = np.array([999, 3, 3, 512])
    assert permuted(places, 1000, "a").tolist() == whole[places].tolist()


def test_a_list_that_no_memory_would_hold() -> None:
    size = (1 << 61) + 12345
    found = permuted(np.arange(1000) * (size // 1000), size, "a")
    assert len(set(found.tolist())) == 1000
    assert (found >= 0).all()
    assert (found < size).all()


def test_every_number_is_as_likely_at_every_place() -> None:
    counts = [Counter[int]() for _ in range(5)]
    for key in range(500):
        for place, number in enumerate(permuted(np.arange(5), 5, str(key)).tolist()):
            counts[place][number] += 1
    # 100 of each are expected, with a deviation of 9
    assert all(60 < count < 140 for counter in counts for count in counter.values())


def test_neighbours_are_parted() -> None:
    order = permuted(np.arange(10_000), 10_000, "a")
    assert np.count_nonzero(np.abs(np.diff(order)) < 100) < 400  # 199 are expected


def test_the_order_is_for_ever() -> None:
    # a run that is resumed after an update must find the windows that it left
    assert permuted(np.arange(12), 12, "for ever").tolist() == [4, 11, 0, 7, 5, 9, 3, 6, 2, 8, 10, 1]
