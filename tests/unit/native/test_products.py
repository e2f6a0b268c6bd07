"""Matrix products: right to a derived bound, and the same bits however they are computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart import _native
from headstart.checkpoint.dequantize import DEQUANTIZERS
from headstart.runtime.native import NativeTrunk
from headstart.testing.passes import rows_of_one, wanted_logits
from headstart.testing.quantise import make_tensor
from headstart.testing.small_trunks import make_product_trunk

FORMATS = [(kind, "") for kind in sorted(DEQUANTIZERS)] + [("F32", "int8"), ("BF16", "int8"), ("F32", "int8-row")]
FLOAT_KINDS = ("F32", "F16", "BF16")
SPLIT_KINDS = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")  # a value is scale * code + minimum
INSTRUCTION_SETS = _native.instruction_sets()
ROW_COUNTS = (*range(1, 18), 33)
NUM_INPUTS = 512
EPSILON = 2.0**-24


def random_case(kind: str, num_outputs: int) -> tuple[NDArray[np.float64], NDArray[np.float32], list[float]]:
    """Weights, 33 rows of inputs and a bias, with groups of very different size and a row of zeros."""
    random = np.random.default_rng(5)
    sizes = 10.0 ** random.uniform(-1, 1, (num_outputs, NUM_INPUTS // 32)).repeat(32, axis=1)
    weights = random.normal(0.3, 1.0, (num_outputs, NUM_INPUTS)) * sizes
    inputs = random.normal(size=(33, NUM_INPUTS)) * 10.0 ** random.uniform(-2, 2, (33, NUM_INPUTS // 32)).repeat(32, 1)
    inputs[7] = 0.0
    inputs[8, 32:] = 0.0
    return weights, inputs.astype(np.float32), random.normal(size=num_outputs).tolist()


def product(trunk: NativeTrunk, tokens: Sequence[int]) -> NDArray[np.float32]:
    return wanted_logits(trunk, rows_of_one(tokens))


def quantised_rows(inputs: NDArray[np.float32], span: int) -> NDArray[np.float64]:
    """What the core makes of rows: for each span, codes of 8 bits at a scale of the largest magnitude / 127."""
    groups = inputs.reshape(len(inputs), -1, span)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(groups * inverse).astype(np.float64)
    return (codes * (largest / np.float32(127)).astype(np.float64)).reshape(inputs.shape)


def stored_weights(kind: str, target: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    tensor = make_tensor("w", weights, kind)
    if not target:
        return tensor.dequantize().astype(np.float64)
    program = _native.Program(1, "")
    matrix = program.add_matrix(kind, target, *tensor.shape, tensor.data, None)
    return np.stack([program.unpack_row(matrix, row) for row in range(tensor.shape[0])]).astype(np.float64)


@pytest.mark.parametrize(("kind", "target"), FORMATS)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_products_are_right(kind: str, target: str, instruction_set: str) -> None:
    weights, inputs, bias = random_case(kind, 37)
    trunk = make_product_trunk(
        make_tensor("w", weights, kind), inputs, target=target, bias=bias, instruction_set=instruction_set
    )
    found = product(trunk, range(33)).astype(np.float64)
    stored = stored_weights(kind, target, weights)
    if kind in FLOAT_KINDS and not target:
        rows, num_sums = inputs.astype(np.float64), NUM_INPUTS
    elif target == "int8-row":
        rows, num_sums = quantised_rows(inputs, NUM_INPUTS), 1
    else:
        rows, num_sums = quantised_rows(inputs, 32), 2 * NUM_INPUTS // 32
    expected = rows @ stored.T + np.array(bias)
    # every sum rounds once, and every term a few times; a code's and a minimum's term may each be as large as
    # the largest weight
    sizes = np.abs(stored).max(axis=1, keepdims=True) if kind in SPLIT_KINDS else np.abs(stored)
    magnitude = np.abs(rows) @ np.broadcast_to(sizes, stored.shape).T
    bound = (num_sums + 5) * EPSILON * (magnitude + np.abs(bias))
    np.testing.assert_array_less(np.abs(found - expected), bound)


@pytest.mark.parametrize(("kind", "target"), FORMATS)
def test_a_row_has_its_bits_whatever_is_beside_it(kind: str, target: str) -> None:
    weights, inputs, bias = random_case(kind, 37)
    tensor = make_tensor("w", weights, kind)
    reference = product(
        make_product_trunk(tensor, inputs, target=target, bias=bias, instruction_set="portable"), range(33)
    )
    for instruction_set in INSTRUCTION_SETS:
        trunk = make_product_trunk(tensor, inputs, target=target, bias=bias, instruction_set=instruction_set)
        for num_rows in ROW_COUNTS:
            for first in {0, 33 - num_rows}:
                tokens = range(first, first + num_rows)
                np.testing.assert_array_equal(product(trunk, tokens), reference[tokens], f"{instruction_set} {tokens}")


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize(("kind", "target"), FORMATS)
def test_threads_do_not_show(kind: str, target: str, threads: int) -> None:
    # 31 tiles: several pieces of work, the last one odd
    weights, inputs, bias = random_case(kind, 16 * 30 + 5)
    tensor = make_tensor("w", weights, kind)
    trunk = make_product_trunk(tensor, inputs, target=target, bias=bias, threads=threads)
    alone = make_product_trunk(tensor, inputs, target=target, bias=bias, threads=1, instruction_set="avx2")
    for num_rows in (1, 3, 33):
        np.testing.assert_array_equal(product(trunk, range(num_rows)), product(alone, range(num_rows)))


@pytest.mark.parametrize("num_outputs", [1, 2, 15, 16, 17, 64, 65])
@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q4_K"])
def test_odd_numbers_of_outputs(kind: str, num_outputs: int) -> None:
    weights, inputs, _ = random_case(kind, 65)
    whole = product(make_product_trunk(make_tensor("w", weights, kind), inputs), [0])
    part = make_product_trunk(make_tensor("w", weights[:num_outputs], kind), inputs[:1])
    np.testing.assert_array_equal(product(part, [0]), whole[:, :num_outputs])


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize(
    ("kind", "target"), [("Q8_0", ""), ("Q4_1", ""), ("Q6_K", ""), ("F32", "int8-row"), ("F32", "")]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_comes_through(value: float, kind: str, target: str, instruction_set: str) -> None:
    """Or damaged weights would choose tokens as if nothing were wrong."""
    weights, inputs, _ = random_case(kind, 37)
    inputs[0, 40] = value
    inputs[2] = value
    trunk = make_product_trunk(make_tensor("w", weights, kind), inputs, target=target, instruction_set=instruction_set)
    found = product(trunk, range(3))
    assert not np.isfinite(found[[0, 2]]).any()
    np.testing.assert_array_equal(found[1], product(trunk, [1])[0])


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("size", [1e-38, 1e-42])
def test_vanishing_rows_vanish(size: float, instruction_set: str) -> None:
    """The inverse of such a scale is infinite; nothing large may come of it."""
    weights, inputs, _ = random_case("Q4_1", 37)
    inputs[0] = size
    trunk = make_product_trunk(make_tensor("w", weights, "Q4_1"), inputs, instruction_set=instruction_set)
    reference = make_product_trunk(make_tensor("w", weights, "Q4_1"), inputs, instruction_set="portable")
    found = product(trunk, [0])
    assert np.abs(found).max() < 1e-25
    np.testing.assert_array_equal(found, product(reference, [0]))


@pytest.mark.parametrize(("kind", "target"), FORMATS)
def test_as_many_outputs_as_inputs(kind: str, target: str) -> None:
    """No width may be taken for the vocabulary's because it equals it."""
    weights, inputs, _ = random_case(kind, NUM_INPUTS)
    square = product(make_product_trunk(make_tensor("w", weights, kind), inputs, target=target), range(33))
    part = product(make_product_trunk(make_tensor("w", weights[:50], kind), inputs, target=target), range(33))
    np.testing.assert_array_equal(square[:, :50], part)
