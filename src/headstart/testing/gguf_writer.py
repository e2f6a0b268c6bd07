"""Writes small GGUF files, for tests and tiny models. The reader is `headstart.checkpoint`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headstart.checkpoint.gguf import ARRAY, BOOL, DEFAULT_ALIGNMENT, KIND_NUMBERS, MAGIC, SCALAR_FORMATS, STRING
from headstart.checkpoint.tensor import Tensor

_TYPE_OF_DTYPE = {np.dtype(form): number for number, form in SCALAR_FORMATS.items() if number != BOOL}
_UINT32, _INT32, _FLOAT32, _UINT64, _INT64 = 4, 5, 6, 10, 11


def write_gguf(path: Path, metadata: Mapping[str, object], tensors: Iterable[Tensor] = (), *, version: int = 3) -> None:
    """Write a GGUF file.

    Args:
        path: where to.
        metadata: strings, bools, ints (u32, or i32 if negative, or 64-bit if
            they must be), floats (f32), numpy arrays, and sequences of one of
            these. `general.alignment` is honoured.
        tensors: in file order; `quantise.make_tensor` makes them.
        version: 2 or 3.
    """
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    assert isinstance(alignment, int)
    tensors = tuple(tensors)
    head = bytearray(MAGIC + struct.pack("<IQQ", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        value_type, payload = _encode(value)
        head += _string(key) + struct.pack("<I", value_type) + payload
    offset = 0
    for tensor in tensors:
        head += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", KIND_NUMBERS[tensor.kind], offset)
        offset += _padded(tensor.data.nbytes, alignment)
    with path.open("wb") as file:
        file.write(head.ljust(_padded(len(head), alignment), b"\0"))
        for tensor in tensors:
            file.write(tensor.data.tobytes().ljust(_padded(tensor.data.nbytes, alignment), b"\0"))


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _encode(value: object) -> tuple[int, bytes]:
    """A value's GGUF type number and bytes."""
    if isinstance(value, str):
        return STRING, _string(value)
    if isinstance(value, bool):
        return BOOL, bytes([value])
    if isinstance(value, int):
        number = _integer_type(value)
        return number, struct.pack(SCALAR_FORMATS[number], value)
    if isinstance(value, float):
        return _FLOAT32, struct.pack("<f", value)
    if isinstance(value, np.ndarray):
        return ARRAY, struct.pack("<IQ", _array_type(value), value.size) + value.tobytes()
    if isinstance(value, list | tuple):
        return ARRAY, _encode_sequence(value)
    raise TypeError(f"GGUF has no type for {value!r}")


def _integer_type(value: int) -> int:
    if value < 0:
        return _INT32 if value >= -(1 << 31) else _INT64
    return _UINT32 if value < 1 << 32 else _UINT64


def _array_type(values: np.ndarray[Any, np.dtype[Any]]) -> int:
    return BOOL if values.dtype == np.bool_ else _TYPE_OF_DTYPE[values.dtype]


def _encode_sequence(values: list[object] | tuple[object, ...]) -> bytes:
    encoded = [_encode(value) for value in values]
    types = {number for number, _ in encoded} or {STRING}
    if len(types) > 1:
        raise TypeError(f"a GGUF array holds values of one type, not {values!r}")
    return struct.pack("<IQ", types.pop(), len(values)) + b"".join(payload for _, payload in encoded)
