"""What the trunk's layers say of the training text, read once and kept on disk.

The trunk is the native one, so heads learn from the very states that they will
be given. A cache belongs to one text and one set of taps; a document that is
there is never read again, so an interrupted run goes on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.checkpoint.json_files import read_json_object
from headstart.errors import CapacityError, CheckpointError
from headstart.runtime.native import NativeTrunk
from headstart.runtime.protocol import PAGE_TOKENS, Rows
from headstart.runtime.torch_runtime import TextBatch
from headstart.train.chunked import log_normaliser
from headstart.train.heads_loss import TrainingBatch
from headstart.train.packing import Windows
from headstart.train.text_shard import Document
from headstart.train.whole_files import write_whole

# rows of one trunk pass over a text
_CHUNK = 256

# documents after which it is noted how far reading came
_SAVE_EVERY = 100

_ABOUT_NAME = "about.json"


class TapReader:
    """Runs texts through a native trunk that keeps taps."""

    def __init__(self, trunk: NativeTrunk, window: int) -> None:
        """Take over the trunk's cache.

        Args:
            trunk: loaded with taps; no one else may use it.
            window: tokens of a text at most.
        """
        self._trunk = trunk
        num_pages = -(-window // PAGE_TOKENS)
        trunk.make_cache(num_pages)
        self._pages = np.arange(num_pages, dtype=np.int32)

    def read(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """The taps [N, width] of a text [N], side by side."""
        for start in range(0, len(tokens), _CHUNK):
            part = tokens[start : start + _CHUNK]
            count = len(part)
            self._trunk.forward(
                Rows(
                    tokens=np.ascontiguousarray(part, dtype=np.int32),
                    positions=np.arange(start, start + count, dtype=np.int32),
                    parents=np.arange(-1, count - 1, dtype=np.int32),
                    sequences=np.zeros(count, np.int32),
                    page_tables=[self._pages],
                    committed=np.array([start], np.int32),
                    wanted=np.zeros(0, np.int32),
                )
            )
        return self._trunk.taps(self._pages, 0, len(tokens))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrunkHead:
    """What turns the trunk's last state into its logits.

    Attributes:
        final_norm: float32 [hidden_size].
        norm_eps: of the norm.
        unembedding: bfloat16 [vocab_size, hidden_size].
    """

    final_norm: Tensor
    norm_eps: float
    unembedding: Tensor

    def normed(self, states: Tensor) -> Tensor:
        """States of the last layer past the final norm, in bfloat16."""
        wide = states.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.norm_eps)
        return (wide * scale * self.final_norm).bfloat16()


class TapCache:
    """Taps of a text's documents on disk, in bfloat16, with the trunk's normaliser and likeliest token.

    Documents are read in order, whole, each with nothing but itself in sight. More may be added to the text later;
    what was read stays. The last `hidden_size` columns are those of the trunk's last layer.
    """

    def __init__(
        self, path: Path, documents: Sequence[Document], reader: TapReader, head: TrunkHead, width: int, key: str
    ) -> None:
        """Open a cache, or begin one.

        Args:
            path: a folder of its own.
            documents: the text.
            reader: gives what is not there yet.
            head: of the trunk.
            width: of all taps together.
            key: digest of trunk and taps; a cache of others, or of another text, is begun anew.

        Raises:
            CapacityError: the disk has no room for it.
        """
        self._documents, self._reader, self._head, self._path, self._key = documents, reader, head, path, key
        self._offsets = np.cumsum([0, *(len(document.tokens) for document in documents)])
        path.mkdir(parents=True, exist_ok=True)
        self.num_read = num_read(path, documents, key)
        self._read_text = _digest_of(documents[: self.num_read])
        if not self.num_read:
            (path / _ABOUT_NAME).unlink(missing_ok=True)  # what it says is about to be overwritten
        num_tokens = int(self._offsets[-1])
        _require_room(path, num_tokens * (2 * width + 8))
        self._taps = _map(path / "taps.u16", np.uint16, (num_tokens, width))
        self._normaliser = _map(path / "normaliser.f32", np.float32, (num_tokens,))
        self._likeliest = _map(path / "likeliest.i32", np.int32, (num_tokens,))

    def read_next(self) -> int:
        """Read the next document that is not there yet; returns its tokens.

        Raises:
            CheckpointError: a tap is not finite.
        """
        tokens = self._documents[self.num_read].tokens
        rounded = torch.from_numpy(self._reader.read(tokens)).bfloat16()
        normalisers, likeliest = log_normaliser(self._states(rounded), self._head.unembedding)
        if not bool(normalisers.isfinite().all()):
            raise CheckpointError(f"What the model says of document {self.num_read} is not finite. Is it damaged?")
        place = slice(self._offsets[self.num_read], self._offsets[self.num_read + 1])
        self._taps[place] = rounded.view(torch.uint16).numpy()
        self._normaliser[place] = normalisers.numpy()
        self._likeliest[place] = likeliest.numpy()
        self._read_text.update(_raw(self._documents[self.num_read]))
        self.num_read += 1
        if self.num_read % _SAVE_EVERY == 0 or self.num_read == len(self._documents):
            self._save()
        return len(tokens)

    def _save(self) -> None:
        for array in (self._taps, self._normaliser, self._likeliest):
            array.flush()
        about = {"key": self._key, "documents": self.num_read, "text": self._read_text.hexdigest()}
        write_whole(self._path / _ABOUT_NAME, json.dumps(about))

    def batch(self, windows: Windows, indices: Sequence[int], columns: slice) -> TrainingBatch:
        """Windows with their taps.

        Args:
            windows: packed from the documents, all of which have been read.
            indices: which.
            columns: of the taps, those that the heads read.
        """
        chosen = np.asarray(indices, np.intp)
        shape = (len(chosen), windows.tokens.shape[1])
        taps = np.zeros((*shape, self._taps.shape[1]), np.uint16)
        normaliser, likeliest = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        for row, index in enumerate(chosen):
            for piece in windows.pieces[index]:
                assert piece.document < self.num_read, "what was not read would be zeros"
                begin = self._offsets[piece.document] + piece.start
                source, target = slice(begin, begin + piece.length), slice(piece.place, piece.place + piece.length)
                taps[row, target] = self._taps[source]
                normaliser[row, target] = self._normaliser[source]
                likeliest[row, target] = self._likeliest[source]
        as_tensor = torch.from_numpy(taps).view(torch.bfloat16)
        text = TextBatch(
            *(
                torch.from_numpy(array[chosen].astype(np.int64))
                for array in (windows.tokens, windows.documents, windows.positions)
            )
        )
        return TrainingBatch(
            text=text,
            supervised=torch.from_numpy(windows.supervised[chosen]),
            taps=as_tensor[..., columns],
            trunk_states=self._states(as_tensor),
            log_normaliser=torch.from_numpy(normaliser),
            likeliest=torch.from_numpy(likeliest),
        )

    def _states(self, taps: Tensor) -> Tensor:
        return self._head.normed(taps[..., taps.shape[-1] - len(self._head.final_norm) :])


def num_read(path: Path, documents: Sequence[Document], key: str) -> int:
    """How many documents of a text have been read into a cache: from the first on; 0 if it is of another text or key.

    Args:
        path: its folder, which need not be there.
        documents: the text.
        key: as `TapCache` takes it.
    """
    about = path / _ABOUT_NAME
    known = read_json_object(about) if about.exists() else {}
    count = known.get("documents")
    if known.get("key") != key or not isinstance(count, int) or not 0 <= count <= len(documents):
        return 0
    return count if known.get("text") == _digest_of(documents[:count]).hexdigest() else 0


def _digest_of(documents: Sequence[Document]) -> hashlib.blake2b:
    state = hashlib.blake2b(digest_size=16)
    for document in documents:
        state.update(_raw(document))
    return state


def _raw(document: Document) -> bytes:
    return len(document.tokens).to_bytes(8, "little") + document.tokens.astype("<i4").tobytes()


def _require_room(path: Path, num_bytes: int) -> None:
    """Files have holes until they are written, and a disk that is full then ends the process without a word."""
    held = sum(file.stat().st_blocks * 512 for file in path.iterdir())
    free = shutil.disk_usage(path).free
    if num_bytes - held > free:
        raise CapacityError(
            f"What the model says of the text takes {num_bytes / 2**30:.2f} GiB under {path}, where "
            f"{(held + free) / 2**30:.2f} are to be had. Take less text or fewer taps, or another disk."
        )


def _map(path: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A file as an array, made or lengthened as needed."""
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    with path.open("ab") as file:
        if file.tell() < num_bytes:
            os.truncate(path, num_bytes)
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)
