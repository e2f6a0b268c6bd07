"""Orders that are computed place by place, so that shuffling needs no memory.

What comes at a place depends on the key alone, not on a generator that a library might change, so that a run that is
resumed years later finds the same order.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8


def permuted(places: NDArray[np.int64], size: int, key: str) -> NDArray[np.int64]:
    """What stands at the places of a shuffled list of 0 ... size - 1.

    A balanced Feistel network permutes the numbers of an even number of bits, the fewest that cover `size`; a number
    that lands outside is sent through again until it lies inside, which keeps the whole a permutation.

    Args:
        places: int64 [N], each at least 0 and below `size`.
        size: length of the list, 1 to 2**62.
        key: names the order.

    Returns:
        int64 [N].

    Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002), the cycle-walking cipher.
    """
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
    round_keys = np.frombuffer(digest, "<u8")
    numbers = places.astype(np.uint64)
    outside = np.ones(len(numbers), np.bool_)
    while outside.any():
        numbers[outside] = _feistel(numbers[outside], half_bits, round_keys)
        outside = numbers >= size
    return numbers.astype(np.int64)


def _feistel(numbers: NDArray[np.uint64], half_bits: int, round_keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    low = np.uint64((1 << half_bits) - 1)
    left, right = numbers >> np.uint64(half_bits), numbers & low
    for round_key in round_keys:
        left, right = right, left ^ (_mixed(right ^ round_key) & low)
    return (left << np.uint64(half_bits)) | right


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of a number spread over all 64; the arithmetic wraps around.

    Source: the finaliser of SplitMix64; Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA
    2014), with the constants of Stafford's variant 13.
    """
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
