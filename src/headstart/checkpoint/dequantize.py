"""Stored blocks to float32, in numpy: the reference for every kernel.

Every product and sum is taken in float32 in the order of GGML's scalar code, so
a kernel that dequantises the same way yields the same bits.

Source: ggml-quants.c, `dequantize_row_*`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.checkpoint.kinds import KINDS
from headstart.errors import UnsupportedError

Floats = NDArray[np.float32]
Blocks = NDArray[Any]  # [B], structured as in `kinds`

# Bounds the temporaries: some 4 million values at a time, whatever the tensor's size.
_CHUNK_VALUES = 1 << 22


def dequantize(kind: str, data: NDArray[np.uint8], shape: tuple[int, ...]) -> Floats:
    """The values of a tensor.

    Args:
        kind: a name in `KINDS`.
        data: uint8 [bytes], whole blocks.
        shape: row-major shape; rows are whole blocks.

    Returns:
        A new float32 array of `shape`.

    Raises:
        UnsupportedError: the kind holds no weights (integers, F64, F8).
    """
    values_of = DEQUANTIZERS.get(kind)
    if values_of is None:
        raise UnsupportedError(f"Kind {kind} cannot be read as float32; this build reads {', '.join(DEQUANTIZERS)}.")
    layout = KINDS[kind]
    blocks = data.view(layout.block)
    out = np.empty((len(blocks), layout.block_values), np.float32)
    chunk = _CHUNK_VALUES // layout.block_values
    for start in range(0, len(blocks), chunk):
        out[start : start + chunk] = values_of(blocks[start : start + chunk]).reshape(-1, layout.block_values)
    assert out.size == math.prod(shape)
    return out.reshape(shape)


def _column(blocks: Blocks, field: str) -> Floats:
    return blocks[field].astype(np.float32)[:, None]  # [B, 1]


def _f32(blocks: Blocks) -> Floats:
    return blocks


def _f16(blocks: Blocks) -> Floats:
    return blocks.astype(np.float32)


def _bf16(blocks: Blocks) -> Floats:
    return (blocks.astype(np.uint32) << 16).view(np.float32)


def _halves(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[..., n] bytes to [..., 2, n]: the low nibbles, then the high ones."""
    return np.stack([nibbles & 0x0F, nibbles >> 4], axis=-2)


def _four_bit(blocks: Blocks) -> NDArray[np.uint8]:
    return _halves(blocks["nibbles"]).reshape(-1, 32)


def _five_bit(blocks: Blocks) -> NDArray[np.uint8]:
    fifth = (blocks["fifth_bits"][:, None] >> np.arange(32, dtype=np.uint32)) & 1  # [B, 32]
    return _four_bit(blocks) | (fifth << 4).astype(np.uint8)


def _q8_0(blocks: Blocks) -> Floats:
    return blocks["values"].astype(np.float32) * _column(blocks, "scale")


def _q4_0(blocks: Blocks) -> Floats:
    return (_four_bit(blocks).astype(np.int8) - 8).astype(np.float32) * _column(blocks, "scale")


def _q4_1(blocks: Blocks) -> Floats:
    return _four_bit(blocks).astype(np.float32) * _column(blocks, "scale") + _column(blocks, "minimum")


def _q5_0(blocks: Blocks) -> Floats:
    return (_five_bit(blocks).astype(np.int8) - 16).astype(np.float32) * _column(blocks, "scale")


def _q5_1(blocks: Blocks) -> Floats:
    return _five_bit(blocks).astype(np.float32) * _column(blocks, "scale") + _column(blocks, "minimum")


def unpack_super_scales(packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The 6-bit scales and minima of Q4_K and Q5_K.

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minima 0-3 in their low six bits;
    bytes 8-11 hold the low nibbles of scales 4-7 (low half) and minima 4-7
    (high half), whose upper two bits lie in the top of bytes 0-3 and 4-7.

    Args:
        packed: uint8 [B, 12].

    Returns:
        Scales and minima, each uint8 [B, 8].
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)], axis=1)
    minima = np.concatenate([second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)], axis=1)
    return scales, minima


def _scaled_groups(blocks: Blocks, values: NDArray[np.uint8]) -> Floats:
    """`values` [B, 8, 32] times their group's scale, less its minimum."""
    scales, minima = unpack_super_scales(blocks["scales"])
    group_scale = _column(blocks, "scale") * scales.astype(np.float32)  # [B, 8]
    group_minimum = _column(blocks, "minimum") * minima.astype(np.float32)
    return group_scale[..., None] * values.astype(np.float32) - group_minimum[..., None]


def _q4_k(blocks: Blocks) -> Floats:
    # 32 bytes serve two neighbouring groups of 32 values
    return _scaled_groups(blocks, _halves(blocks["nibbles"].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(blocks: Blocks) -> Floats:
    low = _halves(blocks["nibbles"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    groups = np.arange(8, dtype=np.uint8)[:, None]
    fifth = (blocks["fifth_bits"][:, None, :] >> groups) & np.uint8(1)  # [B, 8, 32]: bit g is group g's
    return _scaled_groups(blocks, low | (fifth << np.uint8(4)))


def _q6_k(blocks: Blocks) -> Floats:
    # Each half block of 128 values: 64 bytes of nibbles, 32 bytes of upper bits, four per byte.
    low = _halves(blocks["nibbles"].reshape(-1, 2, 64)).reshape(-1, 8, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    upper = ((blocks["upper_bits"].reshape(-1, 2, 1, 32) >> shifts) & 3).reshape(-1, 8, 32)
    values = ((low | (upper << 4)).astype(np.int8) - 32).astype(np.float32).reshape(-1, 16, 16)
    group_scale = _column(blocks, "scale") * blocks["scales"].astype(np.float32)  # [B, 16]
    return group_scale[..., None] * values


DEQUANTIZERS: Mapping[str, Callable[[Blocks], Floats]] = MappingProxyType(
    {
        "F32": _f32,
        "F16": _f16,
        "BF16": _bf16,
        "Q8_0": _q8_0,
        "Q4_0": _q4_0,
        "Q4_1": _q4_1,
        "Q5_0": _q5_0,
        "Q5_1": _q5_1,
        "Q4_K": _q4_k,
        "Q5_K": _q5_k,
        "Q6_K": _q6_k,
    }
)
"""Values of blocks, for every kind that can hold weights."""
