"""Heads in one safetensors file: what they are, which trunk they fit, how they were made, and their weights.

What the description of the heads means is not known here; it is carried as plain
data. The format is described in docs/reference/heads-file.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import __version__
from headstart.checkpoint.heads_storage import Storage, restore_weight, store_weights, stored_shapes
from headstart.checkpoint.json_files import check_keys, parse_json_object
from headstart.checkpoint.safetensors import HEADS_SUFFIX, read_safetensors, read_safetensors_header
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.checkpoint.tensor import Tensor
from headstart.checkpoint.trunk_identity import TrunkIdentity
from headstart.errors import CheckpointError, ConfigError, UnsupportedError

FORMAT_VERSION = 1

_METADATA_KEY = "headstart"
_VOCABULARY = "vocabulary"
_REMAKE = "The file is damaged or was altered; fetch or make it again."

# How files that heads are mistaken for begin, and what tensors of other programs are called.
_OTHER_FORMATS = ((b"GGUF", "a GGUF file"), (b"PK\x03\x04", "a pickled PyTorch file"), (b"\x80", "a pickled file"))
_OTHER_TENSORS = (
    (re.compile(r"d2t$|midlayer\."), "EAGLE-3 heads of another program"),
    (re.compile(r"(medusa_head\.)?\d+\.\d+\.linear\.(weight|bias)$"), "Medusa heads of another program"),
    (re.compile(r"mtp\.|.*\.eh_proj\."), "a checkpoint with multi-token prediction modules of its own"),
    (re.compile(r".*\.lora_[AB]\."), "a LoRA adapter"),
    (re.compile(r"(model\.)?(layers\.\d+\.|embed_tokens\.)|lm_head\."), "a model, or a part of one"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadsHeader:
    """What a heads file says of its weights.

    Attributes:
        heads: their kind, sizes and choices, as `HeadsConfig.to_json` gives them.
        trunk: the model that they were trained for.
        recipe: how they were trained; free, but JSON.
        measured: what they reach, such as acceptance by category; free, but JSON.
        library_version: of this package, when the file was written.
    """

    heads: Mapping[str, Any]
    trunk: TrunkIdentity
    recipe: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    library_version: str = __version__


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeadsFile:
    """A heads file, opened: its weights are mapped, not read.

    Attributes:
        path: the file.
        header: what it says.
        shapes: of the heads' own weights, by the names of their programs.
        vocabulary: int32 [draft_vocab_size], the trunk's token id of each that can
            be guessed; `None` if all can.
    """

    path: Path
    header: HeadsHeader
    shapes: Mapping[str, tuple[int, ...]]
    vocabulary: NDArray[np.int32] | None
    _stored: Mapping[str, Tensor] = field(repr=False)

    def tensor(self, name: str) -> Tensor:
        """A weight in the kind that it is stored in; Q8_0 for one that is stored as int8.

        Args:
            name: one of `shapes`.
        """
        return restore_weight(self._stored, name)

    def digest(self) -> str:
        """A fingerprint of all its bytes, 32 hexadecimal digits."""
        return hashlib.blake2b(self.path.read_bytes(), digest_size=16).hexdigest()


def write_heads(
    path: Path,
    header: HeadsHeader,
    weights: Mapping[str, NDArray[np.float32]],
    vocabulary: NDArray[np.int32] | None = None,
    storage: Storage = "int8",
) -> None:
    """Write a heads file; the name appears, or is replaced, only when it is complete.

    Args:
        path: where to, by custom `*.heads.safetensors`.
        header: what the file says.
        weights: the heads' own, float32 matrices [out, in] and vectors, by the names of their programs.
        vocabulary: int32 [draft_vocab_size], distinct token ids of the trunk; `None` for all.
        storage: of the matrices: "f32", "f16", "bf16", or "int8" in groups of 32 inputs.

    Raises:
        ConfigError: something that the file could not hold.
        CheckpointError: it cannot be written.
    """
    tensors = store_weights(weights, storage)
    if _VOCABULARY in weights:
        raise ConfigError(f"A weight is called {_VOCABULARY!r}: the name is taken. Call it otherwise.")
    if vocabulary is not None:
        if problem := _vocabulary_problem(vocabulary, header.trunk.vocab_size):
            raise ConfigError(f"The draft vocabulary {problem}. Give distinct token ids of the trunk.")
        data = np.ascontiguousarray(vocabulary, "<i4").view(np.uint8)
        tensors.append(Tensor(_VOCABULARY, vocabulary.shape, "I32", data))
    write_safetensors(path, tensors, {_METADATA_KEY: _header_text(header)})


def open_heads(path: Path) -> HeadsFile:
    """Open a heads file: the header is read and every tensor checked for kind and shape; weights stay on disk.

    Raises:
        CheckpointError: the file is missing, damaged, of a later format, or no heads file.
    """
    _refuse_other_formats(path)
    metadata, names = read_safetensors_header(path)
    if _METADATA_KEY not in metadata:
        raise CheckpointError(f"{path}: {_looks_like(names)}. Give a file that this program's training wrote.")
    header = _parse_header(metadata[_METADATA_KEY], f"{path}: the description of the heads")
    try:
        tensors = read_safetensors(path)
    except UnsupportedError as error:  # a kind of number that no version 1 of this format has
        raise CheckpointError(f"{error} {_REMAKE}") from error
    stored_vocabulary = tensors.pop(_VOCABULARY, None)
    vocabulary = None if stored_vocabulary is None else _read_vocabulary(path, stored_vocabulary, header.trunk)
    shapes = stored_shapes(tensors, str(path))
    return HeadsFile(path=path, header=header, shapes=shapes, vocabulary=vocabulary, _stored=tensors)


def is_heads_file(path: Path) -> bool:
    """Whether a safetensors file says of itself that it holds heads; damaged ones may.

    Raises:
        CheckpointError: the file is missing, or has no valid header.
    """
    metadata, _ = read_safetensors_header(path)
    return _METADATA_KEY in metadata


def _header_text(header: HeadsHeader) -> str:
    document = {
        "format_version": FORMAT_VERSION,
        "library_version": header.library_version,
        "heads": dict(header.heads),
        "trunk": header.trunk.to_json(),
        "recipe": dict(header.recipe),
        "measured": dict(header.measured),
    }
    try:
        return json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The description of the heads cannot be written as JSON ({error}). Use texts, finite numbers, lists and "
            "objects."
        ) from error


def _parse_header(text: str, where: str) -> HeadsHeader:
    document = parse_json_object(text, where)
    version = document.pop("format_version", None)
    if version != FORMAT_VERSION or type(version) is not int:
        raise CheckpointError(
            f"{where} has format version {str(version)[:40]}, written by version "
            f"{str(document.get('library_version'))[:40]} of this program; this is {__version__} and reads format "
            f"{FORMAT_VERSION}. Use a version that reads it, or fetch heads of this format."
        )
    check_keys(document, {"library_version", "heads", "trunk", "recipe", "measured"}, where)
    for name in ("heads", "trunk", "recipe", "measured"):
        if not isinstance(document[name], dict):
            raise CheckpointError(f"{where}: {name} is not an object. {_REMAKE}")
    if not isinstance(document["library_version"], str):
        raise CheckpointError(f"{where}: library_version is not a string. {_REMAKE}")
    return HeadsHeader(**{**document, "trunk": TrunkIdentity.from_json(document["trunk"], f"{where}: trunk")})


def _read_vocabulary(path: Path, stored: Tensor, trunk: TrunkIdentity) -> NDArray[np.int32]:
    if stored.kind != "I32" or len(stored.shape) != 1:
        raise CheckpointError(
            f"{path}: the draft vocabulary is {stored.kind} {list(stored.shape)}: it must be a list of I32. {_REMAKE}"
        )
    # a copy, so that it is aligned whatever stands before it in the file
    ids = np.frombuffer(stored.data.tobytes(), "<i4").astype(np.int32, copy=False)
    if problem := _vocabulary_problem(ids, trunk.vocab_size):
        raise CheckpointError(f"{path}: the draft vocabulary {problem}. {_REMAKE}")
    return ids


def _vocabulary_problem(ids: NDArray[np.int32], vocab_size: int) -> str | None:
    """What is wrong with a draft vocabulary, to stand after its name; `None` if nothing is."""
    if ids.ndim != 1 or ids.size == 0 or ids.dtype != np.int32:
        return f"is {ids.dtype} {list(ids.shape)}, not a list of int32 token ids"
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        return f"has token id {int(outside[0])}, but the trunk has {vocab_size} tokens"
    values, counts = np.unique(ids, return_counts=True)
    if values.size < ids.size:
        return f"has token id {int(values[counts > 1][0])} more than once"
    return None


def _refuse_other_formats(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise CheckpointError(
            f"{path}: the file cannot be read ({error}). Check the path and its permissions."
        ) from error
    if start.endswith(b"{"):
        return  # a safetensors header; the length before it may begin with any byte
    for magic, words in _OTHER_FORMATS:
        if start.startswith(magic):
            raise CheckpointError(f"{path}: {words}, but heads come as *{HEADS_SUFFIX}. Give such a file.")


def _looks_like(names: tuple[str, ...]) -> str:
    for pattern, words in _OTHER_TENSORS:
        if any(pattern.match(name) for name in names):
            return f"no heads file of this program, but {words}"
    shown = ", ".join(names)[:120] or "none"
    return f"no heads file of this program (its header has no {_METADATA_KEY!r} entry; its tensors: {shown})"
