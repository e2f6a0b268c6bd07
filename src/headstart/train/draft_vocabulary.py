"""Which tokens a reduced draft vocabulary holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.train.packing import Windows


def choose_vocabulary(windows: Windows, vocab_size: int, size: int) -> tuple[NDArray[np.int64], float]:
    """The tokens that the text's supervised part has most often.

    Args:
        windows: the text.
        vocab_size: ids of the trunk.
        size: tokens to choose; rounded to what is asked, equal counts go by the lower id.

    Returns:
        int64 [size], ids ascending; and the share of the supervised text that they cover.

    Raises:
        ConfigError: the size is out of range.
    """
    if not 0 < size <= vocab_size:
        raise ConfigError(f"A draft vocabulary of {size} tokens: it must be between 1 and {vocab_size}.")
    counts = np.bincount(windows.tokens[windows.supervised], minlength=vocab_size)
    chosen = np.sort(np.argsort(-counts, kind="stable")[:size])
    return chosen.astype(np.int64), float(counts[chosen].sum() / counts.sum())
