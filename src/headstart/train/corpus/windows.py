"""Which windows a step trains on: a function of seed, step, rank and number of processes, and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.train.corpus.store import TokenStore


@dataclass(frozen=True, slots=True, eq=False)
class PackedWindows:
    """Windows full of text, without padding.

    Attributes:
        tokens: int32 [B, T].
        documents: int32 [B, T], number of the piece within its window: 0, 1, ...
        positions: int32 [B, T], position within the piece.
        supervised: bool [B, T], true where the token is to be learnt as a target.
    """

    tokens: NDArray[np.int32]
    documents: NDArray[np.int32]
    positions: NDArray[np.int32]
    supervised: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.tokens)


class CorpusWindows:
    """The batches of a run.

    In every epoch the documents are laid end to end in a new order and cut into windows, which come in an order of
    their own, so that a batch holds parts of many documents. A piece of a document that begins in an earlier window
    is a document of its own.

    Attributes:
        window: tokens of a window, T.
        batch_windows: windows of a step, of all processes together.
        windows_per_epoch: windows that an epoch is cut into.
    """

    window: int
    batch_windows: int
    windows_per_epoch: int

    def __init__(
        self, store: TokenStore, window: int, batch_windows: int, seed: int, *, rank: int = 0, world_size: int = 1
    ) -> None:
        """Nothing is read yet.

        Args:
            store: the documents.
            window: tokens of a window, at least 2.
            batch_windows: windows of a step, of all processes together; a multiple of `world_size`.
            seed: decides the order.
            rank: of this process, from 0.
            world_size: number of processes.

        Raises:
            ConfigError: a number is out of range, or the store is empty.
        """
        raise NotImplementedError

    @property
    def steps_per_epoch(self) -> int:
        """Steps after which every document has been seen, rounded up."""
        raise NotImplementedError

    def epoch_of(self, step: int) -> int:
        """The epoch, from 0, that the first window of a step (from 0) lies in."""
        raise NotImplementedError

    def batch(self, step: int) -> PackedWindows:
        """This rank's windows of a step, `batch_windows / world_size` of them; in order of ranks they are the step.

        Args:
            step: from 0.
        """
        raise NotImplementedError


def validation_windows(store: TokenStore, window: int, count: int) -> PackedWindows:
    """Windows evenly from the whole store, always the same.

    Args:
        store: the documents, usually `Corpus.validation`.
        window: tokens of a window, at least 2.
        count: how many; fewer if the store has not as many.

    Raises:
        ConfigError: the store does not fill one window.
    """
    raise NotImplementedError
