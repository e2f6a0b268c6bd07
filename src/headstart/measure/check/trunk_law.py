"""What the model says of every place of a text: its log-probabilities, plainly computed, one text at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.engine.cache import num_pages_for
from headstart.errors import CapacityError
from headstart.runtime.protocol import PAGE_TOKENS, Rows, Trunk

# a page of logits of a large vocabulary takes tens of megabytes
_CHUNK = 64


class TrunkLaw:
    """Runs a trunk over texts, without drafts, batches or shared pages.

    What the text has in common with the one before is not run again.
    """

    def __init__(self, trunk: Trunk, max_tokens: int) -> None:
        """Take the trunk's cache.

        Args:
            trunk: the model. No engine may use it meanwhile.
            max_tokens: of the longest text to come.

        Raises:
            CapacityError: the model's context is shorter, or the memory is not to be had.
        """
        if max_tokens > trunk.max_context:
            raise CapacityError(
                f"Texts of {max_tokens} tokens are to be checked, and the model's context is {trunk.max_context}. "
                "Use shorter prompts, or fewer tokens."
            )
        self._trunk = trunk
        self._pages = np.arange(num_pages_for(max_tokens), dtype=np.int32)
        self._in_cache: list[int] = []
        trunk.make_cache(len(self._pages))

    @property
    def most_tokens(self) -> int:
        """Of a text."""
        return len(self._pages) * PAGE_TOKENS

    @property
    def vocab_size(self) -> int:
        """Length V of a row."""
        return self._trunk.vocab_size

    def after(self, text: Sequence[int], num_places: int = 1) -> NDArray[np.float64]:
        """What follows each of the last places of a text.

        Args:
            text: token ids, at least `num_places`.
            num_places: how many of its last tokens are asked about.

        Returns:
            float64 [num_places, V], log-probabilities at temperature 1; row i is what follows after
            `text[len(text) - num_places + i]`.
        """
        assert 0 < num_places <= len(text)
        first_wanted = len(text) - num_places
        committed = 0
        while committed < min(len(self._in_cache), first_wanted) and self._in_cache[committed] == text[committed]:
            committed += 1
        rows = []
        for start in range(committed, len(text), _CHUNK):
            chunk = np.asarray(text[start : start + _CHUNK], np.int32)
            positions = np.arange(start, start + len(chunk), dtype=np.int32)
            wanted = np.flatnonzero(positions >= first_wanted).astype(np.int32)
            self._trunk.forward(
                Rows(
                    tokens=chunk,
                    positions=positions,
                    parents=np.arange(-1, len(chunk) - 1, dtype=np.int32),
                    sequences=np.zeros(len(chunk), np.int32),
                    page_tables=[self._pages],
                    committed=np.asarray([start], np.int32),
                    wanted=wanted,
                )
            )
            rows += [_log_softmax(self._trunk.logits(index)) for index in range(len(wanted))]
        self._in_cache = list(text)
        return np.stack(rows)


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result
