"""Which tokens a reduced draft vocabulary holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.train.packing import Windows


def choose_vocabulary(windows: Windows, vocab_size: int, size: int) -> NDArray[np.int64]:
    """The tokens that the text's supervised part has most often.

    Args:
        windows: the text.
        vocab_size: ids of the trunk.
        size: tokens to choose; rounded to what is asked, equal counts go by the lower id.

    Returns:
        int64 [size], ids ascending.

    Raises:
        ConfigError: the size is out of range.
    """
    if not 0 < size <= vocab_size:
        raise ConfigError(f"A draft vocabulary of {size} tokens: it must be between 1 and {vocab_size}.")
    chosen = np.argsort(-_counts(windows, vocab_size), kind="stable")[:size]
    return np.sort(chosen).astype(np.int64)


def coverage(windows: Windows, vocab_size: int, chosen: NDArray[np.int64]) -> float:
    """The share of the text's supervised part that some tokens cover.

    Args:
        windows: the text.
        vocab_size: ids of the trunk.
        chosen: ids.
    """
    counts = _counts(windows, vocab_size)
    return float(counts[chosen].sum() / counts.sum())


def _counts(windows: Windows, vocab_size: int) -> NDArray[np.intp]:
    return np.bincount(windows.tokens[windows.supervised], minlength=vocab_size)
