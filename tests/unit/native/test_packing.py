"""Packed matrices hold exactly the file's numbers, and quantisation at load stays within its bound."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart import _native
from headstart.checkpoint.dequantize import DEQUANTIZERS
from headstart.checkpoint.kinds import KINDS
from headstart.checkpoint.tensor import Tensor
from headstart.testing.quantise import make_tensor

WEIGHT_KINDS = sorted(DEQUANTIZERS)
# outputs of a tile are 16; a piece of work for a thread is 16 tiles
OUTPUT_COUNTS = (1, 15, 16, 17, 50)


def unpacked(
    tensor: Tensor, *, target: str = "", row_order: NDArray[np.int32] | None = None, threads: int = 1
) -> NDArray[np.float32]:
    program = _native.Program(threads, "")
    num_outputs = tensor.shape[0] if row_order is None else len(row_order)
    matrix = program.add_matrix(tensor.kind, target, num_outputs, tensor.shape[1], tensor.data, row_order)
    return np.stack([program.unpack_row(matrix, row) for row in range(num_outputs)])


def random_tensor(kind: str, num_outputs: int, seed: int = 0) -> Tensor:
    """Any bytes at all, so that every code and every scale occurs, negative, subnormal and NaN among them."""
    layout = KINDS[kind]
    shape = (num_outputs, 3 * max(layout.block_values, 32))
    return Tensor(kind, shape, kind, np.random.default_rng(seed).integers(0, 256, layout.num_bytes(shape), np.uint8))


def values_of(tensor: Tensor) -> NDArray[np.float32]:
    with np.errstate(invalid="ignore"):  # some scales are infinite
        return tensor.dequantize()


def assert_same_bits(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    both_nan = np.isnan(found) & np.isnan(expected)  # NaNs may differ in what they carry
    np.testing.assert_array_equal(
        np.where(both_nan, 0, found.view(np.uint32)), np.where(both_nan, 0, expected.view(np.uint32))
    )


@pytest.mark.parametrize("num_outputs", OUTPUT_COUNTS)
@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_every_kind_keeps_its_values(kind: str, num_outputs: int) -> None:
    tensor = random_tensor(kind, num_outputs)
    assert_same_bits(unpacked(tensor), values_of(tensor))


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_rows_in_another_order(kind: str) -> None:
    tensor = random_tensor(kind, 37)
    order = np.random.default_rng(1).permutation(37).astype(np.int32)
    assert_same_bits(unpacked(tensor, row_order=order), values_of(tensor)[order])
    some = order[:18]  # a part of the rows
    assert_same_bits(unpacked(tensor, row_order=some), values_of(tensor)[some])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_packing(threads: int) -> None:
    tensor = random_tensor("Q4_1", 16 * 16 * 3 + 5)
    assert_same_bits(unpacked(tensor, threads=threads), values_of(tensor))


def largest_of_groups(values: NDArray[np.float32], size: int) -> NDArray[np.float64]:
    groups = np.abs(values.astype(np.float64)).reshape(len(values), -1, size)
    return groups.max(axis=2, keepdims=True).repeat(size, axis=2).reshape(values.shape)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize(("target", "scale_error"), [("int8", 2.0**-11), ("int8-row", 2.0**-24)])
def test_quantising_at_load(kind: str, target: str, scale_error: float) -> None:
    random = np.random.default_rng(2)
    # groups of very different size, so that a scale taken from a neighbour shows
    values = random.normal(size=(37, 96)) * 10.0 ** random.integers(-2, 3, (37, 3)).repeat(32, axis=1)
    tensor = make_tensor("w", values, kind)
    exact = values_of(tensor)
    largest = largest_of_groups(exact, 32 if target == "int8" else 96)
    error = np.abs(unpacked(tensor, target=target).astype(np.float64) - exact)
    # half a step, and what rounding the scale (to f16 for groups) does to 127 steps
    assert (error <= largest / 127 / 2 * (1 + 1e-6) + largest * scale_error).all()
    # the bound is tight: codes use all 127 steps, or the error would be smaller or larger throughout
    assert error.max() > 0.45 * (largest / 127)[error == error.max()][0]


CONSTANTS = [0.0, -0.0, 1.0, -3.5, 8e6, 1e-30]


@pytest.mark.parametrize(
    ("target", "value"),
    [(target, value) for target in ("int8", "int8-row") for value in CONSTANTS] + [("int8-row", 3e38)],
)
def test_constant_rows(target: str, value: float) -> None:
    values = np.full((17, 64), value, np.float32)
    found = unpacked(make_tensor("w", values), target=target)
    if target == "int8" and abs(value) < 1e-6:
        assert (np.abs(found) <= abs(value)).all()  # below the least scale: nothing worse than zero
    else:
        np.testing.assert_allclose(found, values, rtol=2.0**-11 if target == "int8" else 1e-6)


@pytest.mark.parametrize("target", ["int8", "int8-row"])
def test_one_large_value_beside_zeros(target: str) -> None:
    values = np.zeros((16, 64), np.float32)
    values[np.arange(16), np.arange(16) * 4] = -127.0
    np.testing.assert_array_equal(unpacked(make_tensor("w", values), target=target), values)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K"])
def test_quantised_kinds_are_not_quantised_again(kind: str) -> None:
    tensor = random_tensor(kind, 20)
    assert_same_bits(unpacked(tensor, target="int8"), values_of(tensor))


GOOD = make_tensor("w", np.ones((4, 64)), "Q8_0").data


@pytest.mark.parametrize(
    ("kind", "target", "shape", "data", "order"),
    [
        ("Q9_9", "", (4, 64), GOOD, None),
        ("Q8_0", "", (4, 48), GOOD, None),  # no whole blocks
        ("F32", "", (4, 48), np.zeros(4 * 48 * 4, np.uint8), None),  # no whole groups of 32
        ("F32", "int7", (4, 64), np.zeros(4 * 64 * 4, np.uint8), None),
        ("Q8_0", "", (5, 64), GOOD, None),
        ("Q8_0", "", (0, 64), GOOD[:0], None),
        ("Q8_0", "", (4, 0), GOOD, None),
        ("Q8_0", "", (4, 64), GOOD[:-1], None),
        ("Q8_0", "", (4, 64), GOOD, np.array([0, 1, 2], np.int32)),
        ("Q8_0", "", (4, 64), GOOD, np.array([0, 1, 2, 4], np.int32)),
        ("Q8_0", "", (4, 64), GOOD, np.array([0, 1, 2, -1], np.int32)),
    ],
)
def test_what_does_not_fit_is_refused(
    kind: str, target: str, shape: tuple[int, int], data: NDArray[np.uint8], order: NDArray[np.int32] | None
) -> None:
    program = _native.Program(1, "")
    with pytest.raises(ValueError, match=r"\w"):
        program.add_matrix(kind, target, *shape, data, order)
    assert program.add_matrix("Q8_0", "", 4, 64, GOOD, None) == 0  # and left nothing behind
