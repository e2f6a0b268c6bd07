"""GGUF files: key-values and tensors out of one mapped file.

Every number read from the file is checked before it is used: a damaged file
ends in an error that says what is wrong and where, and can neither make the
reader allocate more than the file's own size nor read outside it.

Source: the GGUF specification, ggml/docs/gguf.md (versions 2 and 3).
"""

from __future__ import annotations

import math
import mmap
import struct
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.kinds import KINDS
from headstart.checkpoint.mapping import map_file
from headstart.checkpoint.tensor import Tensor
from headstart.errors import CheckpointError, UnsupportedError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

# GGML's numbers for tensor kinds. Those without a layout in `KINDS` are listed so that an error can name them.
KIND_NUMBERS: Mapping[str, int] = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q8_1": 9, "Q2_K": 10, "Q3_K": 11,
    "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "Q8_K": 15, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19,
    "IQ4_NL": 20, "IQ3_S": 21, "IQ2_S": 22, "IQ4_XS": 23, "I8": 24, "I16": 25, "I32": 26, "I64": 27, "F64": 28,
    "IQ1_M": 29, "BF16": 30, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40,
}  # fmt: skip
_KIND_OF_NUMBER = {number: name for name, number in KIND_NUMBERS.items()}

# GGUF's numbers for the types of values.
SCALAR_FORMATS: Mapping[int, str] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
BOOL, STRING, ARRAY = 7, 8, 9
_SCALARS = {number: struct.Struct(form) for number, form in SCALAR_FORMATS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_MAX_ARRAY_DEPTH = 4

# The least bytes of an entry bound how many a file of a given size can hold.
_MIN_PAIR_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF file holds.

    Attributes:
        metadata: numbers, bools and strings as Python's; an array of strings as
            a tuple, an array of numbers as a read-only numpy array.
        tensors: by name, in file order.
    """

    metadata: Mapping[str, object]
    tensors: Mapping[str, Tensor]


def read_gguf(path: Path) -> GgufFile:
    """Read a GGUF file's key-values and map its tensors.

    Raises:
        CheckpointError: the file is missing, truncated, or altered.
        UnsupportedError: another version, big-endian, split over files, or a
            tensor kind that this build does not read.
    """
    cursor = _Cursor(map_file(path), path)
    num_tensors, num_pairs = _read_header(cursor)
    metadata = _read_metadata(cursor, num_pairs)
    parts = metadata.get("split.count", 1)
    if not isinstance(parts, int) or parts > 1:
        raise UnsupportedError(
            f"{path}: this is one part of a model split over {parts if isinstance(parts, int) else 'several'} files. "
            "Join them first: llama-gguf-split --merge FIRST_PART OUTPUT"
        )
    return GgufFile(metadata, _read_tensors(cursor, num_tensors, _alignment(cursor, metadata)))


def declared_gguf(path: Path) -> tuple[Mapping[str, object], tuple[DeclaredTensor, ...]]:
    """A GGUF file's key-values, and what its header says of its tensors.

    The bytes after the header need not be there, the kinds may be unknown, and
    the file may be one part of several.

    Raises:
        CheckpointError: the file is missing, or its header truncated or altered.
        UnsupportedError: another version, or big-endian.
    """
    cursor = _Cursor(map_file(path), path)
    num_tensors, num_pairs = _read_header(cursor)
    metadata = _read_metadata(cursor, num_pairs)
    entries = [_read_declared(cursor, index) for index in range(num_tensors)]
    data_start = _data_start(cursor, _alignment(cursor, metadata))
    # a kind whose layout is unknown takes what lies between it and the next
    ends = sorted([entry[3] for entry in entries] + [max(cursor.size - data_start, 0)])
    tensors = []
    for name, kind, shape, offset in entries:
        layout = KINDS.get(kind)
        following = ends[min(bisect_right(ends, offset), len(ends) - 1)]
        num_bytes = max(following - offset, 0) if layout is None else layout.num_bytes(shape)
        tensors.append(DeclaredTensor(name, kind, shape, num_bytes))
    return metadata, tuple(tensors)


class _Cursor:
    """A place in the mapped file, and the only code that moves it."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self.buffer = buffer
        self.path = path
        self.position = 0
        self.size = len(buffer)

    def fail(self, problem: str) -> NoReturn:
        raise CheckpointError(
            f"{self.path}: {problem} (at byte {self.position} of {self.size}). "
            "The file is truncated or altered; fetch it again."
        )

    def number(self, unpacker: struct.Struct, what: str) -> Any:
        if unpacker.size > self.size - self.position:
            self.fail(f"the file ends within {what}")
        (value,) = unpacker.unpack_from(self.buffer, self.position)
        self.position += unpacker.size
        return value

    def count(self, what: str, min_bytes_each: int) -> int:
        """A count of entries, of which the rest of the file could hold as many."""
        value: int = self.number(_U64, what)
        if value * min_bytes_each > self.size - self.position:
            self.fail(f"{what} is {value}, more than the file has room for")
        return value

    def string(self, what: str) -> str:
        return self.strings(1, what)[0]

    def strings(self, count: int, what: str) -> list[str]:
        """`count` strings in a row; vocabularies have 100 000, so the loop is kept tight."""
        buffer, end, length_at = self.buffer, self.size, _U64.unpack_from
        position = self.position
        out: list[str] = []
        add = out.append
        try:
            for _ in range(count):
                start = position + 8
                (length,) = length_at(buffer, position)
                position = start + length
                if position > end:
                    break
                add(str(buffer[start:position], "utf-8"))
        except struct.error:
            pass  # the length itself lies beyond the end: reported below, as any other truncation
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8 ({error.reason})")
        if len(out) != count:
            self.fail(f"the file ends within {what}")
        self.position = position
        return out

    def numbers(self, element_type: int, count: int) -> np.ndarray[Any, np.dtype[Any]]:
        dtype = np.dtype(SCALAR_FORMATS[element_type])
        values = np.frombuffer(self.buffer, dtype, count, self.position)
        self.position += values.nbytes
        if element_type == BOOL:
            if values.size and values.max() > 1:
                self.fail("an array of bools holds something else")
            return values.view(np.bool_)
        return values


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    if cursor.buffer[:4] != MAGIC:
        raise CheckpointError(
            f"{cursor.path}: not a GGUF file (it begins with {cursor.buffer[:4]!r}, not {MAGIC!r}). "
            "Give a .gguf file, or the folder that holds config.json and *.safetensors."
        )
    cursor.position = len(MAGIC)
    version = cursor.number(_U32, "the version")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS:
            raise UnsupportedError(f"{cursor.path}: a big-endian GGUF file; convert it on a little-endian machine.")
        raise UnsupportedError(
            f"{cursor.path}: GGUF version {version}; this build reads versions "
            f"{' and '.join(map(str, VERSIONS))}. Convert the model again with a current llama.cpp."
        )
    num_tensors = cursor.count("the number of tensors", _MIN_TENSOR_BYTES)
    return num_tensors, cursor.count("the number of key-values", _MIN_PAIR_BYTES)


def _read_metadata(cursor: _Cursor, num_pairs: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(num_pairs):
        key = cursor.string(f"the name of key-value {index}")
        if key in metadata:
            cursor.fail(f"key {key!r} occurs twice")
        value_type = cursor.number(_U32, f"the type of key {key!r}")
        metadata[key] = _read_value(cursor, value_type, f"the value of key {key!r}", depth=0)
    return metadata


def _read_value(cursor: _Cursor, value_type: int, what: str, depth: int) -> object:
    if value_type == STRING:
        return cursor.string(what)
    if value_type == ARRAY:
        return _read_array(cursor, what, depth)
    unpacker = _SCALARS.get(value_type)
    if unpacker is None:
        cursor.fail(f"{what} has the unknown type {value_type}")
    value: object = cursor.number(unpacker, what)
    if value_type == BOOL:
        if value not in (0, 1):
            cursor.fail(f"{what} is a bool of value {value}")
        return value == 1
    return value


def _read_array(cursor: _Cursor, what: str, depth: int) -> object:
    element_type = cursor.number(_U32, what)
    if element_type == STRING:
        return tuple(cursor.strings(cursor.count(f"the length of {what}", 8), what))
    if element_type == ARRAY:
        if depth == _MAX_ARRAY_DEPTH:
            cursor.fail(f"{what} nests arrays deeper than {_MAX_ARRAY_DEPTH}")
        count = cursor.count(f"the length of {what}", 4 + 8)
        return tuple(_read_array(cursor, what, depth + 1) for _ in range(count))
    if element_type not in SCALAR_FORMATS:
        cursor.fail(f"{what} is an array of the unknown type {element_type}")
    return cursor.numbers(element_type, cursor.count(f"the length of {what}", _SCALARS[element_type].size))


def _alignment(cursor: _Cursor, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {alignment!r}, not a power of two")
    return alignment


@dataclass(frozen=True, slots=True)
class _TensorEntry:
    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int  # from the start of the tensor data
    num_bytes: int


def _read_tensors(cursor: _Cursor, num_tensors: int, alignment: int) -> dict[str, Tensor]:
    entries = [_read_tensor_entry(cursor, index, alignment) for index in range(num_tensors)]
    data_start = _data_start(cursor, alignment)
    _check_extents(cursor, entries, data_start)
    whole = np.frombuffer(cursor.buffer, np.uint8)
    tensors: dict[str, Tensor] = {}
    for entry in entries:
        if entry.name in tensors:
            cursor.fail(f"tensor {entry.name!r} occurs twice")
        start = data_start + entry.offset
        tensors[entry.name] = Tensor(entry.name, entry.shape, entry.kind, whole[start : start + entry.num_bytes])
    return tensors


def _data_start(cursor: _Cursor, alignment: int) -> int:
    return -(-cursor.position // alignment) * alignment


def _read_declared(cursor: _Cursor, index: int) -> tuple[str, str, tuple[int, ...], int]:
    """Name, kind, shape and offset of a tensor, as its entry has them."""
    name = cursor.string(f"the name of tensor {index}")
    what = f"the entry of tensor {name!r}"
    num_dimensions = cursor.number(_U32, what)
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        cursor.fail(f"tensor {name!r} has {num_dimensions} dimensions; 1 to {MAX_DIMENSIONS} are allowed")
    # GGML counts the fastest axis first
    shape = tuple(cursor.number(_U64, what) for _ in range(num_dimensions))[::-1]
    number = cursor.number(_U32, what)
    offset = cursor.number(_U64, what)
    return name, _KIND_OF_NUMBER.get(number, f"number {number}"), shape, offset


def _read_tensor_entry(cursor: _Cursor, index: int, alignment: int) -> _TensorEntry:
    """The same of a tensor that can be mapped."""
    name, kind, shape, offset = _read_declared(cursor, index)
    layout = KINDS.get(kind)
    if layout is None:
        raise UnsupportedError(
            f"{cursor.path}: tensor {name!r} has kind {kind}; this build reads {', '.join(KINDS)}. "
            "Choose a file quantised to one of these (Q4_K_M and Q8_0 are widely offered)."
        )
    if not layout.fits(shape) or math.prod(shape) == 0:
        cursor.fail(
            f"tensor {name!r} has shape {shape}, but rows of {kind} are multiples of {layout.block_values} values"
        )
    if offset % alignment:
        cursor.fail(f"tensor {name!r} begins at offset {offset}, which is no multiple of {alignment}")
    return _TensorEntry(name, kind, shape, offset, layout.num_bytes(shape))


def _check_extents(cursor: _Cursor, entries: list[_TensorEntry], data_start: int) -> None:
    for entry in entries:
        if data_start + entry.offset + entry.num_bytes > cursor.size:
            cursor.fail(f"tensor {entry.name!r} ends at byte {data_start + entry.offset + entry.num_bytes}")
    in_order = sorted(entries, key=lambda entry: entry.offset)
    for before, after in pairwise(in_order):
        if before.offset + before.num_bytes > after.offset:
            cursor.fail(f"tensors {before.name!r} and {after.name!r} overlap")
