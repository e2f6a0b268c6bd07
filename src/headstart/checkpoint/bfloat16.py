"""Floats to bfloat16 bits, which numpy has no type for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def round_to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of floats, rounded to nearest, ties to even.

    Args:
        values: float32, any shape.

    Returns:
        uint16 of the same shape; a NaN stays one.
    """
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    # a NaN must not be rounded into an infinity
    rounded = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded)
    return (rounded >> np.uint32(16)).astype(np.uint16)
