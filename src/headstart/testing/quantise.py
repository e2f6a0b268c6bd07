"""Quantises weights to every kind the checkpoints can hold, for tiny test models.

The blocks are valid and the values near; the rounding is plain, not the search
that GGML does, so these are no tools to quantise a real model with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.checkpoint.kinds import KINDS, Kind
from headstart.checkpoint.tensor import Tensor

Floats = NDArray[np.float32]
Blocks = NDArray[Any]  # [B], structured as in `headstart.checkpoint.kinds`


def make_tensor(name: str, values: ArrayLike, kind: str = "F32") -> Tensor:
    """A tensor of `kind` that holds `values`, rounded as the kind must.

    Args:
        name: the tensor's name.
        values: any shape; the last axis is a multiple of the kind's block.
        kind: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K.
    """
    array = np.ascontiguousarray(values, np.float32)
    return Tensor(name, array.shape, kind, quantise(array, kind))


def quantise(values: Floats, kind: str) -> NDArray[np.uint8]:
    """The bytes of `values` [..., n] in `kind`, as uint8 [bytes]."""
    layout = KINDS[kind]
    assert layout.fits(values.shape), f"rows of {kind} are multiples of {layout.block_values} values"
    blocks = _QUANTISERS[kind](values.reshape(-1, layout.block_values), layout)
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(-1)


def _plain(values: Floats, layout: Kind) -> Blocks:
    return values.astype(layout.block)


def _bf16(values: Floats, layout: Kind) -> Blocks:
    bits = values.view(np.uint32)
    nearest_even = bits + 0x7FFF + ((bits >> 16) & 1)
    return (nearest_even >> 16).astype(layout.block)


def _inverse(scale: Floats) -> Floats:
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def _pack_halves(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[..., 2, n] to [..., n]: first values to the low nibbles, second to the high ones."""
    return (levels[..., 0, :] & np.uint8(15)) | (levels[..., 1, :] << np.uint8(4))


def _new_blocks(values: Floats, layout: Kind) -> Blocks:
    return np.zeros(len(values), layout.block)


def _q8_0(values: Floats, layout: Kind) -> Blocks:
    blocks = _new_blocks(values, layout)
    scale = np.abs(values).max(axis=1) / np.float32(127)
    blocks["scale"] = scale
    blocks["values"] = np.rint(values * _inverse(scale)[:, None])
    return blocks


def _centred(num_levels: int) -> Callable[[Floats, Kind], Blocks]:
    """Q4_0, Q5_0: the value of largest magnitude becomes the lowest level."""

    def quantiser(values: Floats, layout: Kind) -> Blocks:
        largest = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, None], axis=1)[:, 0]
        scale = largest / np.float32(-(num_levels // 2))
        levels = np.rint(values * _inverse(scale)[:, None]) + num_levels // 2
        return _fill(values, layout, levels.clip(0, num_levels - 1), scale)

    return quantiser


def _ranged(num_levels: int) -> Callable[[Floats, Kind], Blocks]:
    """Q4_1, Q5_1: levels between the least and the largest value."""

    def quantiser(values: Floats, layout: Kind) -> Blocks:
        minimum = values.min(axis=1)
        scale = (values.max(axis=1) - minimum) / np.float32(num_levels - 1)
        levels = np.rint((values - minimum[:, None]) * _inverse(scale)[:, None])
        blocks = _fill(values, layout, levels.clip(0, num_levels - 1), scale)
        blocks["minimum"] = minimum
        return blocks

    return quantiser


def _fill(values: Floats, layout: Kind, levels: Floats, scale: Floats) -> Blocks:
    blocks = _new_blocks(values, layout)
    whole = levels.astype(np.uint8)
    blocks["scale"] = scale
    blocks["nibbles"] = _pack_halves(whole.reshape(-1, 2, 16))
    if "fifth_bits" in (layout.block.names or ()):
        bits = (whole >> 4).astype(np.uint32) << np.arange(32, dtype=np.uint32)
        blocks["fifth_bits"] = np.bitwise_or.reduce(bits, axis=1)
    return blocks


def _pack_super_scales(scales: NDArray[np.uint8], minima: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `headstart.checkpoint.dequantize.unpack_super_scales`."""
    first = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    second = minima[:, :4] | (minima[:, 4:] >> 4 << 6)
    third = (scales[:, 4:] & 15) | (minima[:, 4:] << 4)
    return np.concatenate([first, second, third], axis=1)


def _grouped(num_levels: int) -> Callable[[Floats, Kind], Blocks]:
    """Q4_K, Q5_K: eight groups of 32 values, each with a 6-bit scale and minimum."""

    def quantiser(values: Floats, layout: Kind) -> Blocks:
        groups = values.reshape(-1, 8, 32)
        lowest = np.minimum(groups.min(axis=2), 0)  # a group's minimum is stored as what to subtract
        step = (groups.max(axis=2) - lowest) / np.float32(num_levels - 1)
        blocks = _new_blocks(values, layout)
        blocks["scale"] = step.max(axis=1) / np.float32(63)
        blocks["minimum"] = (-lowest).max(axis=1) / np.float32(63)
        scales = np.rint(step * _inverse(blocks["scale"].astype(np.float32))[:, None]).clip(0, 63).astype(np.uint8)
        minima = np.rint(-lowest * _inverse(blocks["minimum"].astype(np.float32))[:, None]).clip(0, 63).astype(np.uint8)
        blocks["scales"] = _pack_super_scales(scales, minima)
        real_step = blocks["scale"].astype(np.float32)[:, None] * scales
        real_minimum = blocks["minimum"].astype(np.float32)[:, None] * minima
        levels = np.rint((groups + real_minimum[..., None]) * _inverse(real_step)[..., None])
        whole = levels.clip(0, num_levels - 1).astype(np.uint8)
        blocks["nibbles"] = _pack_halves(whole.reshape(-1, 4, 2, 32)).reshape(-1, 128)
        if num_levels > 16:
            bits = (whole >> 4) << np.arange(8, dtype=np.uint8)[:, None]
            blocks["fifth_bits"] = np.bitwise_or.reduce(bits, axis=1)
        return blocks

    return quantiser


def _q6_k(values: Floats, layout: Kind) -> Blocks:
    groups = values.reshape(-1, 16, 16)
    step = np.abs(groups).max(axis=2) / np.float32(31)
    blocks = _new_blocks(values, layout)
    blocks["scale"] = step.max(axis=1) / np.float32(127)
    blocks["scales"] = np.rint(step * _inverse(blocks["scale"].astype(np.float32))[:, None]).clip(0, 127)
    real_step = blocks["scale"].astype(np.float32)[:, None] * blocks["scales"].astype(np.float32)
    levels = (np.rint(groups * _inverse(real_step)[..., None]).clip(-32, 31) + 32).astype(np.uint8)
    quarters = levels.reshape(-1, 2, 4, 32)  # two half blocks; a byte of upper bits serves four quarters
    low = quarters.reshape(-1, 2, 2, 64)
    blocks["nibbles"] = _pack_halves(low).reshape(-1, 128)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    blocks["upper_bits"] = np.bitwise_or.reduce((quarters >> 4) << shifts, axis=2).reshape(-1, 64)
    return blocks


_QUANTISERS: Mapping[str, Callable[[Floats, Kind], Blocks]] = {
    "F32": _plain,
    "F16": _plain,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _centred(16),
    "Q5_0": _centred(32),
    "Q4_1": _ranged(16),
    "Q5_1": _ranged(32),
    "Q4_K": _grouped(16),
    "Q5_K": _grouped(32),
    "Q6_K": _q6_k,
}
