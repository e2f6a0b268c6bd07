"""safetensors files: one, or the shards of an index.

The format is eight bytes of length, a JSON header, and the bytes; it is read
here by hand because the files are mapped, not loaded, and because bfloat16 has
no numpy type that the library could return.

Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.json_files import parse_json_object, read_json_object
from headstart.checkpoint.kinds import KINDS
from headstart.checkpoint.mapping import map_file
from headstart.checkpoint.tensor import Tensor
from headstart.errors import CheckpointError, UnsupportedError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
# heads lie beside a model and are no part of its weights
HEADS_NAME = "heads.safetensors"
HEADS_SUFFIX = f".{HEADS_NAME}"
_MAX_DIMENSIONS = 32
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Map the tensors of one file, by name.

    Raises:
        CheckpointError: the file is missing, truncated, or altered.
        UnsupportedError: a tensor's number format is unknown.
    """
    buffer = map_file(path)
    header, data_start = _read_header(buffer, path)
    header.pop("__metadata__", None)
    entries = sorted(
        ((name, *_parse_entry(path, name, entry)) for name, entry in header.items()), key=lambda entry: entry[3:]
    )
    whole = np.frombuffer(buffer, np.uint8)
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, kind, shape, begin, next_end in entries:
        if begin != end:
            _fail(path, f"tensor {name!r} begins at byte {begin} of the data, but the one before it ends at {end}")
        end = next_end
        if data_start + end > len(buffer):
            _fail(path, f"tensor {name!r} ends at byte {data_start + end}, the file at byte {len(buffer)}")
        tensors[name] = Tensor(name, shape, kind, whole[data_start + begin : data_start + end])
    if data_start + end != len(buffer):
        _fail(path, f"the tensors end at byte {data_start + end}, the file at byte {len(buffer)}")
    return tensors


def read_safetensors_header(path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The metadata of one file and the names of its tensors; nothing is said about the tensors themselves.

    Raises:
        CheckpointError: the file is missing, or has no valid header.
    """
    header, _ = _read_header(map_file(path), path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        _fail(path, "the metadata is not an object of texts")
    return metadata, tuple(header)


def declared_safetensors(path: Path) -> tuple[DeclaredTensor, ...]:
    """What the header of one file says of its tensors; the bytes after it need not be there, nor the kinds be known.

    Raises:
        CheckpointError: the file is missing, or has no valid header.
    """
    header, _ = _read_header(map_file(path), path)
    header.pop("__metadata__", None)
    return tuple(
        DeclaredTensor(name, kind, shape, end - begin)
        for name, entry in header.items()
        for kind, shape, begin, end in (_read_entry(path, name, entry),)
    )


def read_safetensors_folder(folder: Path) -> dict[str, Tensor]:
    """Map the tensors of a model folder: the shards of its index, or its single file.

    Raises:
        CheckpointError: no such files, a tensor of the index is not in its
            shard, or a file is damaged.
        UnsupportedError: a tensor's number format is unknown.
    """
    if (folder / INDEX_NAME).is_file():
        return _read_shards(folder)
    if (folder / SINGLE_NAME).is_file():
        return read_safetensors(folder / SINGLE_NAME)
    files = sorted(file for file in folder.glob("*.safetensors") if is_weights_name(file.name))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "no *.safetensors file"
        raise CheckpointError(
            f"{folder}: expected {INDEX_NAME}, {SINGLE_NAME} or exactly one *.safetensors file; found {found}."
        )
    return read_safetensors(files[0])


def is_weights_name(name: str) -> bool:
    """Whether a file of this name can hold a model's weights."""
    return name.endswith(".safetensors") and name != HEADS_NAME and not name.endswith(HEADS_SUFFIX)


def _fail(path: Path, problem: str) -> NoReturn:
    raise CheckpointError(f"{path}: {problem}. The file is truncated or altered; fetch it again.")


def _read_header(buffer: mmap.mmap, path: Path) -> tuple[dict[str, Any], int]:
    """The header and where the data begin."""
    if len(buffer) < 8:
        _fail(path, f"the file has {len(buffer)} bytes, less than the length of a header")
    (header_bytes,) = struct.unpack_from("<Q", buffer)
    if header_bytes > min(_MAX_HEADER_BYTES, len(buffer) - 8):
        _fail(path, f"the header claims {header_bytes} bytes in a file of {len(buffer)}")
    return parse_json_object(buffer[8 : 8 + header_bytes], f"{path}: the header"), 8 + header_bytes


def _read_entry(path: Path, name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    """Kind, shape, begin and end of a tensor as its entry has them; the two last count from the start of the data."""
    if not isinstance(entry, dict):
        _fail(path, f"the entry of tensor {name!r} is not an object")
    kind, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (isinstance(kind, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
        _fail(path, f"the entry of tensor {name!r} is malformed: {str(entry)[:200]}")
    # an empty tensor may claim axes of any length, which no array could have
    if len(shape) > _MAX_DIMENSIONS or math.prod(size or 1 for size in shape) >= 1 << 60:
        _fail(path, f"tensor {name!r} has the shape {str(shape)[:200]}")
    begin, end = offsets
    if begin > end:
        _fail(path, f"tensor {name!r} begins at byte {begin} of the data and ends at {end}")
    return kind, tuple(shape), begin, end


def _parse_entry(path: Path, name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    """The same of a kind that can be mapped, and in as many bytes as it takes."""
    kind, shape, begin, end = _read_entry(path, name, entry)
    layout = KINDS.get(kind)
    if layout is None or layout.block_values != 1:
        raise UnsupportedError(
            f"{path}: tensor {name!r} has dtype {kind[:40]}; this build reads "
            f"{', '.join(known.name for known in KINDS.values() if known.block_values == 1)}."
        )
    if end - begin != layout.num_bytes(shape):
        _fail(
            path, f"tensor {name!r} has {end - begin} bytes, but {kind} {list(shape)} takes {layout.num_bytes(shape)}"
        )
    return kind, shape, begin, end


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def _read_shards(folder: Path) -> dict[str, Tensor]:
    index_path = folder / INDEX_NAME
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        _fail(index_path, "weight_map is not an object of file names")
    shards: dict[str, Mapping[str, Tensor]] = {}
    tensors: dict[str, Tensor] = {}
    for name, file in weight_map.items():
        if file not in shards:
            # a shard is a file beside the index: a path could lead anywhere on the machine
            if Path(file).name != file:
                _fail(index_path, f"tensor {name!r} is said to be in {file!r}, which is no plain file name")
            shards[file] = read_safetensors(folder / file)
        if name not in shards[file]:
            _fail(index_path, f"tensor {name!r} is not in {file}, where the index says it is")
        tensors[name] = shards[file][name]
    return tensors
