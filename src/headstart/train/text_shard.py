"""One shard of training text: some documents in a safetensors file that proves itself whole.

A shard answers for a run of prompts: each was written, failed, or was skipped.
It knows nothing of models; what ids mean stands in the header of the store.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from headstart.checkpoint.safetensors import read_safetensors
from headstart.errors import CheckpointError, ConfigError, UnsupportedError

_DTYPES: Mapping[str, tuple[str, str]] = {
    "tokens": ("I32", "<i4"),  # [T], all documents one after another
    "supervised": ("U8", "u1"),  # [T], 0 or 1
    "offsets": ("I64", "<i8"),  # [N + 1]: document i is tokens[offsets[i] : offsets[i + 1]]
    "temperature": ("F32", "<f4"),  # [N]
    "seed": ("U64", "<u8"),  # [N]
    "category": ("I32", "<i4"),  # [N], index into the store's categories
    "outcomes": ("U8", "u1"),  # [asked], 0 for written or an `Absent`
    "digest": ("U8", "u1"),  # [16], of all the others
}
_WRITTEN = 0


class Absent(IntEnum):
    """Why a prompt has no document."""

    FAILED = 1
    SKIPPED = 2


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Document:
    """One text with the marks of what may be learnt from it.

    Attributes:
        tokens: int32 [N], ids of the store's tokenizer, unshifted.
        supervised: bool [N], true where the model chose the token as a part of
            an answer: the prediction *of* that token is to be trained.
        temperature: at which the answers were chosen; 0 is greedy. A store keeps it as float32.
        seed: from which everything random in the document follows, 64-bit.
        category: what the prompt was about.

    Raises:
        ConfigError: the two arrays are not of one length.
    """

    tokens: NDArray[np.int32]
    supervised: NDArray[np.bool_]
    temperature: float
    seed: int
    category: str

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or self.tokens.shape != self.supervised.shape:
            raise ConfigError(
                f"A document has tokens of shape {self.tokens.shape} and marks of shape {self.supervised.shape}: both "
                "must be [N]. Give one mark for each token."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What became of prompts; `num_asked` = `num_documents` + `num_failed` + `num_skipped`.

    Attributes:
        num_documents: prompts whose document was written.
        num_failed: those that the engine refused or that raised.
        num_skipped: those of which no answer came.
        num_tokens: tokens of all documents.
        num_supervised: of these, tokens that may be learnt.
    """

    num_documents: int = 0
    num_failed: int = 0
    num_skipped: int = 0
    num_tokens: int = 0
    num_supervised: int = 0

    @property
    def num_asked(self) -> int:
        """Prompts that were taken up."""
        return self.num_documents + self.num_failed + self.num_skipped

    def __add__(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A shard in memory.

    Attributes:
        documents: those written, in the order of their prompts.
        counts: of all its prompts.
    """

    documents: tuple[Document, ...]
    counts: Counts


def write_shard(path: Path, outcomes: Sequence[Document | Absent], categories: Sequence[str]) -> Counts:
    """Write a shard so that the file is whole or not there at all.

    Args:
        path: where to; must not exist.
        outcomes: one for each prompt, in order.
        categories: of the store.

    Raises:
        ConfigError: a category that is not the store's.
        CheckpointError: the file exists; a shard is never changed.
    """
    if path.exists():
        raise CheckpointError(
            f"{path} exists already: another process writes to this store. Let one of them write, then go on."
        )
    documents = [outcome for outcome in outcomes if isinstance(outcome, Document)]
    arrays = _arrays(outcomes, documents, categories)
    arrays["digest"] = _digest(arrays)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        file.write(save(arrays))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return _counts(arrays)


def read_shard(path: Path, categories: Sequence[str]) -> Shard:
    """Read a shard and check all of it.

    Args:
        path: the file.
        categories: of the store.

    Raises:
        CheckpointError: the file is missing, truncated or altered.
    """
    try:
        tensors = read_safetensors(path)
    except UnsupportedError as error:  # a kind of number that no shard has
        _fail(path, str(error))
    arrays: dict[str, NDArray[Any]] = {}
    for name, (kind, dtype) in _DTYPES.items():
        if name not in tensors or tensors[name].kind != kind or len(tensors[name].shape) != 1:
            _fail(path, f"{name!r} is not there as a list of {kind}")
        arrays[name] = np.frombuffer(tensors[name].data.tobytes(), np.dtype(dtype))
    if not np.array_equal(_digest(arrays), arrays.pop("digest")):
        _fail(path, "its content does not have the digest that it was written with")
    names = _named(path, arrays["category"], categories)
    bounds = zip(arrays["offsets"][:-1].tolist(), arrays["offsets"][1:].tolist(), strict=True)
    documents = tuple(
        Document(
            tokens=arrays["tokens"][begin:end],
            supervised=arrays["supervised"][begin:end].astype(np.bool_),
            temperature=float(arrays["temperature"][index]),
            seed=int(arrays["seed"][index]),
            category=names[index],
        )
        for index, (begin, end) in enumerate(bounds)
    )
    return Shard(documents, _counts(arrays))


def _arrays(
    outcomes: Sequence[Document | Absent], documents: Sequence[Document], categories: Sequence[str]
) -> dict[str, NDArray[Any]]:
    lengths = [len(document.tokens) for document in documents]
    lists: dict[str, Any] = {
        "tokens": np.concatenate([np.zeros(0, np.int32), *(document.tokens for document in documents)]),
        "supervised": np.concatenate([np.zeros(0, np.bool_), *(document.supervised for document in documents)]),
        "offsets": np.cumsum([0, *lengths]),
        "temperature": [document.temperature for document in documents],
        "seed": np.array([document.seed for document in documents], np.uint64),
        "category": [_category_id(document.category, categories) for document in documents],
        "outcomes": [_WRITTEN if isinstance(outcome, Document) else outcome for outcome in outcomes],
    }
    return {name: np.asarray(values, np.dtype(_DTYPES[name][1])) for name, values in lists.items()}


def _category_id(name: str, categories: Sequence[str]) -> int:
    if name not in categories:
        raise ConfigError(
            f"Category {name!r} is not one of the store's ({', '.join(categories) or 'none'}). Name all categories "
            "when the store is made."
        )
    return categories.index(name)


def _named(path: Path, ids: NDArray[np.int32], categories: Sequence[str]) -> list[str]:
    if any(not 0 <= index < len(categories) for index in ids.tolist()):
        _fail(path, f"it has categories that text.json does not name ({len(categories)} are named)")
    return [categories[index] for index in ids.tolist()]


def _digest(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays.keys() - {"digest"}):
        state.update(f"{name}:{arrays[name].size};".encode())
        state.update(arrays[name].tobytes())
    return np.frombuffer(state.digest(), np.uint8)


def _counts(arrays: Mapping[str, NDArray[Any]]) -> Counts:
    return Counts(
        num_documents=int((arrays["outcomes"] == _WRITTEN).sum()),
        num_failed=int((arrays["outcomes"] == Absent.FAILED).sum()),
        num_skipped=int((arrays["outcomes"] == Absent.SKIPPED).sum()),
        num_tokens=arrays["tokens"].size,
        num_supervised=int(arrays["supervised"].sum(dtype=np.int64)),
    )


def _fail(path: Path, problem: str) -> NoReturn:
    raise CheckpointError(
        f"{path}: {problem}. The shard is damaged: copy it anew, or delete it and those after it and write on; the "
        "same documents come again."
    )
