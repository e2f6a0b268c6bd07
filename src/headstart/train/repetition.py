"""How much a text repeats itself. Text that repeats makes any drafter look good."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headstart.train.text_shard import Document

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def distinct_share(documents: Iterable[Document], length: int = 8) -> float | None:
    """The share of distinct ones among all runs of `length` supervised tokens.

    Near 1 for text that says something new all the time; text of a model that
    falls into loops has far less. Eight bytes a run are held in memory.

    Args:
        documents: the text.
        length: tokens of a run, at least 1. A run lies within one answer.

    Returns:
        In (0, 1], or `None` if no answer is that long.
    """
    keys = np.concatenate([np.zeros(0, np.uint64), *(_run_keys(document, length) for document in documents)])
    return None if keys.size == 0 else np.unique(keys).size / keys.size


def _run_keys(document: Document, length: int) -> NDArray[np.uint64]:
    """A 64-bit hash of every run; that two of a billion runs share one by chance is a matter of percents."""
    count = len(document.tokens) - length + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    tokens = document.tokens.astype(np.uint64) + np.uint64(1)
    keys = np.zeros(count, np.uint64)
    inside = np.ones(count, np.bool_)
    for offset in range(length):
        keys = (keys ^ tokens[offset : offset + count]) * _MULTIPLIER
        keys ^= keys >> _SHIFT
        inside &= document.supervised[offset : offset + count]
    return keys[inside]
