"""Files of tokens and the index of the documents in them: how they are written, mapped and checked.

A shard is nothing but tokens, little-endian, one document after another; no document lies in two shards. The index
has a row for each document, where it begins and how many tokens it has, in the order that content and seed decide.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headstart.errors import CheckpointError
from headstart.train.corpus.header import ShardRecord, SplitRecord

_INDEX_DTYPE = np.dtype("<i8")
_READ_BYTES = 1 << 24


class SplitWriter:
    """Writes the shards and the index of one split. To be entered; a shard has its name only when it is whole."""

    def __init__(self, folder: Path, split: str, dtype: np.dtype[Any], shard_tokens: int) -> None:
        """Nothing is written yet.

        Args:
            folder: of the corpus.
            split: its name.
            dtype: of the tokens in the files.
            shard_tokens: a shard that has as many is closed.
        """
        self._folder, self._split, self._dtype, self._shard_tokens = folder, split, dtype, shard_tokens
        self._shards: list[ShardRecord] = []
        self._partial = folder / f"{split}.tokens.partial"
        self._file = self._partial.open("wb")
        self._state = hashlib.blake2b(digest_size=16)
        self._in_shard = self._num_tokens = self._num_bytes = 0
        self._keys = array("Q")
        self._lengths = array("q")

    def __enter__(self) -> Self:
        """Ready."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the file; what has no name yet stays partial."""
        self._file.close()

    def add(self, tokens: NDArray[Any], num_bytes: int, order_key: int) -> None:
        """Add a document.

        Args:
            tokens: integers [length], at least one.
            num_bytes: of its text.
            order_key: 64-bit; documents are numbered in the order of their keys.
        """
        raw = tokens.astype(self._dtype).tobytes()
        self._file.write(raw)
        self._state.update(raw)
        self._keys.append(order_key)
        self._lengths.append(len(tokens))
        self._in_shard += len(tokens)
        self._num_tokens += len(tokens)
        self._num_bytes += num_bytes
        if self._in_shard >= self._shard_tokens:
            self._close_shard()
            self._file = self._partial.open("wb")

    def finish(self) -> SplitRecord:
        """Close the last shard and write the index."""
        self._close_shard()
        lengths = np.asarray(self._lengths, np.int64)
        rows = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1)
        order = np.argsort(np.asarray(self._keys, np.uint64), kind="stable")
        raw = rows[order].astype(_INDEX_DTYPE).tobytes()
        index_path(self._folder, self._split).write_bytes(raw)
        return SplitRecord(
            documents=len(rows), tokens=self._num_tokens, bytes=self._num_bytes, shards=tuple(self._shards),
            index_digest=hashlib.blake2b(raw, digest_size=16).hexdigest(),
        )  # fmt: skip

    def _close_shard(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())  # else a power cut could leave the name with nothing behind it
        self._file.close()
        if self._in_shard:
            self._partial.replace(shard_path(self._folder, self._split, len(self._shards)))
            self._shards.append(ShardRecord(tokens=self._in_shard, digest=self._state.hexdigest()))
        else:
            self._partial.unlink()
        self._state, self._in_shard = hashlib.blake2b(digest_size=16), 0


def shard_path(folder: Path, split: str, number: int) -> Path:
    """The file of a shard."""
    return folder / f"{split}-{number:05d}.tokens"


def index_path(folder: Path, split: str) -> Path:
    """The file of a split's index."""
    return folder / f"{split}.index"


def map_shard(path: Path, record: ShardRecord, dtype: np.dtype[Any], *, verify: bool) -> NDArray[Any]:
    """A shard's tokens, mapped into memory.

    Args:
        path: the file.
        record: what the header says of it.
        dtype: of its tokens.
        verify: read it to check its digest; its size is checked always.

    Raises:
        CheckpointError: it is missing or not what the header says.
    """
    return _map(path, record.tokens, dtype, record.digest if verify else None)


def map_index(path: Path, record: SplitRecord) -> NDArray[np.int64]:
    """Where each document begins, counted over all shards, and its tokens: int64 [documents, 2].

    Raises:
        CheckpointError: it is missing or not what the header says.
    """
    return _map(path, 2 * record.documents, _INDEX_DTYPE, record.index_digest).reshape(record.documents, 2)


def _map(path: Path, count: int, dtype: np.dtype[Any], digest: str | None) -> NDArray[Any]:
    expected = count * dtype.itemsize
    try:
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(
            f"{path}: the file cannot be read ({error.strerror}). Copy it anew, or prepare the corpus again."
        ) from error
    if size != expected:
        raise CheckpointError(
            f"{path}: {size} bytes long, where the header says {expected}. It is truncated or another corpus': copy it "
            "anew, or prepare the corpus again."
        )
    # an empty file cannot be mapped
    values: NDArray[Any] = np.memmap(path, dtype, mode="r") if count else np.zeros(0, dtype)
    if digest is not None and _digest(path) != digest:
        raise CheckpointError(
            f"{path}: its content does not have the digest that the header says. It is damaged or another corpus': "
            "copy it anew, or prepare the corpus again."
        )
    return values


def _digest(path: Path) -> str:
    state = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            state.update(chunk)
    return state.hexdigest()
