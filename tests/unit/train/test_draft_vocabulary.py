"""The tokens that a reduced vocabulary holds, against a plain count."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.errors import ConfigError
from headstart.train.draft_vocabulary import choose_vocabulary, coverage
from headstart.train.packing import Windows, pack
from headstart.train.text_shard import Document

VOCAB_SIZE = 12


def windows_of(tokens: list[int], supervised: list[bool]) -> Windows:
    marks = np.array([*supervised, True], bool)
    document = Document(
        tokens=np.array([*tokens, 0], np.int32), supervised=marks, temperature=0.0, seed=0, category="test"
    )
    return pack([document], [0], len(marks))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, VOCAB_SIZE - 1), st.booleans()), min_size=1, max_size=40),
    st.integers(1, VOCAB_SIZE),
)
def test_the_commonest_of_the_supervised_text_lowest_ids_first(text: list[tuple[int, bool]], size: int) -> None:
    tokens, supervised = [token for token, _ in text], [marked for _, marked in text]
    windows = windows_of(tokens, supervised)
    chosen = choose_vocabulary(windows, VOCAB_SIZE, size)
    counts = Counter([token for token, marked in text if marked] + [0])
    expected = sorted(range(VOCAB_SIZE), key=lambda token: (-counts[token], token))[:size]
    assert chosen.tolist() == sorted(expected)
    assert chosen.dtype == np.int64
    share = sum(counts[token] for token in expected) / sum(counts.values())
    assert coverage(windows, VOCAB_SIZE, chosen) == pytest.approx(share)


@pytest.mark.parametrize("size", [0, -1, VOCAB_SIZE + 1])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"{size} tokens: it must be between 1 and {VOCAB_SIZE}"):
        choose_vocabulary(windows_of([1], [True]), VOCAB_SIZE, size)
