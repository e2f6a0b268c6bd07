from __future__ import annotations

import random
from collections import Counter

import pytest

from headstart.measure.check import chance_texts
from headstart.measure.check.probes import every_run_once


@pytest.mark.parametrize(("num_symbols", "length"), [(2, 2), (2, 6), (3, 4), (4, 3)])
def test_each_run_occurs_once_and_each_symbol_follows_a_shorter_one_equally_often(num_symbols, length):
    sequence = every_run_once(num_symbols, length, random.Random(1))
    runs = Counter(tuple(sequence[start : start + length]) for start in range(len(sequence) - length + 1))
    assert len(runs) == num_symbols**length
    assert set(runs.values()) == {1}
    followers = Counter((run[:-1], run[-1]) for run in runs)
    assert set(followers.values()) == {1}


def test_the_end_of_a_text_was_there_before_and_went_on_otherwise():
    for text in chance_texts():
        separator = text[-1]
        words = text.split(separator)[:-1]
        end = words[-2:]
        followers = {words[i + 2] for i in range(len(words) - 2) if words[i : i + 2] == end}
        assert followers == set(words)


def test_another_seed_is_another_text():
    assert chance_texts(1) == chance_texts(1)
    assert not set(chance_texts(1)) & set(chance_texts(2))
