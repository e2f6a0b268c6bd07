"""How each kind of tensor stores its values: the layout of one block.

A quantised kind cuts a row into blocks of 32 or 256 values that share scales;
a plain kind has blocks of one value. The layouts are those of GGML, little
endian. How values are computed from a block is in `dequantize`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Kind:
    """A number format.

    Attributes:
        name: as GGUF or safetensors call it.
        block_values: values in a block; the last axis is a multiple of it.
        block: the layout of a block.
    """

    name: str
    block_values: int
    block: np.dtype[Any]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.block.itemsize

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this kind.

        Args:
            shape: row-major; the last axis must be a multiple of `block_values`.
        """
        return math.prod(shape) // self.block_values * self.block_bytes

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether rows of this shape are whole blocks."""
        row_values = shape[-1] if shape else 1
        return row_values % self.block_values == 0


def _bytes_field(name: str, size: int) -> tuple[str, str, tuple[int]]:
    return (name, "u1", (size,))


_SCALE = ("scale", "<f2")
_MINIMUM = ("minimum", "<f2")
# nibbles: low halves are the first values of a group, high halves the second ones
_FOUR_BIT = _bytes_field("nibbles", 16)
_FIFTH_BITS = ("fifth_bits", "<u4")  # bit i belongs to value i
_SUPER_SCALES = _bytes_field("scales", 12)  # eight 6-bit scales and eight 6-bit minima

_LAYOUTS: tuple[tuple[str, int, Any], ...] = (
    ("F32", 1, "<f4"),
    ("F16", 1, "<f2"),
    ("BF16", 1, "<u2"),
    ("Q8_0", 32, [_SCALE, ("values", "i1", (32,))]),
    ("Q4_0", 32, [_SCALE, _FOUR_BIT]),
    ("Q4_1", 32, [_SCALE, _MINIMUM, _FOUR_BIT]),
    ("Q5_0", 32, [_SCALE, _FIFTH_BITS, _FOUR_BIT]),
    ("Q5_1", 32, [_SCALE, _MINIMUM, _FIFTH_BITS, _FOUR_BIT]),
    ("Q4_K", 256, [_SCALE, _MINIMUM, _SUPER_SCALES, _bytes_field("nibbles", 128)]),
    ("Q5_K", 256, [_SCALE, _MINIMUM, _SUPER_SCALES, _bytes_field("fifth_bits", 32), _bytes_field("nibbles", 128)]),
    (
        "Q6_K",
        256,
        [_bytes_field("nibbles", 128), _bytes_field("upper_bits", 64), ("scales", "i1", (16,)), _SCALE],
    ),
    # What follows can be listed and mapped, but is no weight this project computes with.
    ("F64", 1, "<f8"),
    ("I8", 1, "i1"),
    ("I16", 1, "<i2"),
    ("I32", 1, "<i4"),
    ("I64", 1, "<i8"),
    ("U8", 1, "u1"),
    ("U16", 1, "<u2"),
    ("U32", 1, "<u4"),
    ("U64", 1, "<u8"),
    ("BOOL", 1, "?"),
    ("F8_E4M3", 1, "u1"),
    ("F8_E5M2", 1, "u1"),
)

KINDS: Mapping[str, Kind] = MappingProxyType(
    {name: Kind(name, block_values, np.dtype(layout)) for name, block_values, layout in _LAYOUTS}
)
"""Every kind that can be mapped, by name."""
