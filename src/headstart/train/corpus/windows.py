"""Which windows a step trains on: a function of seed, step, rank and number of processes, and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.train.corpus.permutation import permuted
from headstart.train.corpus.store import TokenStore


@dataclass(frozen=True, slots=True, eq=False)
class PackedWindows:
    """Windows full of text, without padding.

    Attributes:
        tokens: int32 [B, T].
        documents: int32 [B, T], number of the piece within its window: 0, 1, ...
        positions: int32 [B, T], position within the piece.
        supervised: bool [B, T], true where the token is to be learnt as a target: everywhere. Which tokens can be
            targets at all, as they follow another of their piece, is the matter of `future_targets`.
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
    their own, so that a batch holds parts of many documents. A piece of a document that began in an earlier window
    is a document of its own. The last window of an epoch is filled up from the epoch's beginning.

    Beside the store's index it takes 16 bytes a document for each epoch that it works on.

    Attributes:
        window: tokens of a window, T.
        batch_windows: windows of a step, of all processes together.
        windows_per_epoch: windows that an epoch is cut into.

    Example:
        >>> windows = CorpusWindows(corpus.train, window=512, batch_windows=16, seed=0)
        >>> windows.batch(1000).tokens.shape
        (16, 512)
    """

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
        _check_window(window)
        if world_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(
                f"rank {rank} of {world_size} processes: a rank is at least 0 and below their number. Start the "
                "processes by torchrun, which counts them."
            )
        if batch_windows < 1 or batch_windows % world_size:
            raise ConfigError(
                f"batch_windows = {batch_windows} for {world_size} processes: it must be a multiple of their number, "
                "and at least 1."
            )
        if not store.num_tokens:
            raise ConfigError("The corpus has no document to train on. Prepare one with more sources.")
        self._store, self._seed, self._rank, self._world_size = store, seed, rank, world_size
        self.window = window
        self.batch_windows = batch_windows
        self.windows_per_epoch = -(-store.num_tokens // window)
        self._laid: dict[int, _LaidOut] = {}

    def batch(self, step: int) -> PackedWindows:
        """This rank's windows of a step, `batch_windows / world_size` of them; in order of ranks they are the step.

        Args:
            step: from 0.

        Raises:
            ConfigError: it is below 0.
        """
        if step < 0:
            raise ConfigError(f"step = {step}: steps are counted from 0.")
        share = self.batch_windows // self._world_size
        windows = _empty(share, self.window)
        first = step * self.batch_windows + self._rank * share
        epochs, places = np.divmod(np.arange(first, first + share), self.windows_per_epoch)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            (rows,) = np.nonzero(epochs == epoch)
            key = f"windows of epoch {epoch}, seed {self._seed}"
            chosen = permuted(places[rows], self.windows_per_epoch, key)
            for row, number in zip(rows.tolist(), chosen.tolist(), strict=True):
                self._epoch(epoch).fill(windows, row, number * self.window)
        return windows

    def _epoch(self, epoch: int) -> _LaidOut:
        laid = self._laid.get(epoch)
        if laid is None:
            # only where one epoch ends and the next begins are two in use
            self._laid = {number: kept for number, kept in self._laid.items() if number == epoch - 1}
            count = self._store.num_documents
            order = permuted(np.arange(count), count, f"documents of epoch {epoch}, seed {self._seed}")
            laid = self._laid[epoch] = _LaidOut(self._store, order)
        return laid


def validation_windows(store: TokenStore, window: int, count: int) -> PackedWindows:
    """Windows evenly from the whole store, always the same; no token is in two of them.

    Args:
        store: the documents, usually `Corpus.validation`.
        window: tokens of a window, at least 2.
        count: how many, at least 1; fewer if the store has not as many.

    Raises:
        ConfigError: a number is out of range, or the store does not fill one window.
    """
    _check_window(window)
    if count < 1:
        raise ConfigError(f"count = {count}: at least 1 window is needed to validate.")
    available = store.num_tokens // window
    if not available:
        raise ConfigError(
            f"The validation documents have {store.num_tokens} tokens, and a window has {window}. Take shorter "
            "windows, or prepare the corpus with more documents or a larger validation share. A file is one "
            "document; the records of a JSONL file are many."
        )
    count = min(count, available)
    windows = _empty(count, window)
    laid = _LaidOut(store, np.arange(store.num_documents))
    for row in range(count):
        laid.fill(windows, row, row * available // count * window)
    return windows


class _LaidOut:
    """The documents of a store laid end to end in some order, round and round."""

    def __init__(self, store: TokenStore, order: NDArray[np.int64]) -> None:
        self._store = store
        self._order = order
        self._ends = np.cumsum(store.lengths[order])

    def fill(self, windows: PackedWindows, row: int, begin: int) -> None:
        """Fill a row of windows with the tokens from `begin` on."""
        begin %= self._store.num_tokens
        number = int(np.searchsorted(self._ends, begin, side="right"))
        filled = piece = 0
        while filled < windows.tokens.shape[1]:
            document = self._store.document(int(self._order[number]))
            part = document[begin - (int(self._ends[number]) - len(document)) :][: windows.tokens.shape[1] - filled]
            inside = slice(filled, filled + len(part))
            windows.tokens[row, inside] = part
            windows.documents[row, inside] = piece
            windows.positions[row, inside] = np.arange(len(part))
            filled, piece = filled + len(part), piece + 1
            begin = int(self._ends[number])
            number += 1
            if number == len(self._order):
                number = begin = 0


def _empty(count: int, window: int) -> PackedWindows:
    tokens, documents, positions = (np.zeros((count, window), np.int32) for _ in range(3))
    return PackedWindows(tokens, documents, positions, np.ones((count, window), np.bool_))


def _check_window(window: int) -> None:
    if window < 2:
        raise ConfigError(f"window = {window}: a window has at least 2 tokens, one to predict from and one to predict.")
