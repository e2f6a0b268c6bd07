"""Blocks to values: by hand on single blocks, and against the `gguf` package on random bytes."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.checkpoint import KINDS, Tensor
from headstart.checkpoint.dequantize import DEQUANTIZERS
from headstart.errors import CheckpointError, UnsupportedError
from headstart.testing.quantise import make_tensor, quantise

WEIGHT_KINDS = tuple(DEQUANTIZERS)
HALF = np.array([0.5], "<f2").tobytes()
TWO = np.array([2.0], "<f2").tobytes()


def tensor(kind: str, raw: bytes, *shape: int) -> Tensor:
    return Tensor("t", shape, kind, np.frombuffer(raw, np.uint8))


def test_q4_0_low_nibbles_come_first_and_are_centred_at_eight() -> None:
    values = tensor("Q4_0", HALF + bytes([0x1F, *[0x88] * 15]), 32).dequantize()
    assert values[0] == 0.5 * (15 - 8)
    assert values[16] == 0.5 * (1 - 8)
    assert not np.delete(values, [0, 16]).any()


def test_q4_1_adds_the_minimum() -> None:
    values = tensor("Q4_1", HALF + TWO + bytes([0x30] + [0] * 15), 32).dequantize()
    assert values[16] == 0.5 * 3 + 2
    assert (np.delete(values, 16) == 2).all()


def test_q5_0_takes_the_fifth_bit_of_value_i_from_bit_i() -> None:
    fifth = (1 << 3 | 1 << 20).to_bytes(4, "little")
    values = tensor("Q5_0", HALF + fifth + bytes(16), 32).dequantize()
    assert (values[[3, 20]] == 0).all()
    assert (np.delete(values, [3, 20]) == -8).all()


def test_q8_0_is_signed() -> None:
    values = tensor("Q8_0", HALF + np.arange(-16, 16, dtype=np.int8).tobytes(), 32).dequantize()
    assert np.array_equal(values, np.arange(-16, 16) * np.float32(0.5))


def test_q4_k_upper_groups_take_their_scale_from_three_places() -> None:
    scales = bytearray(12)
    scales[0] = 0b01_000000  # bits 4-5 of scale 4
    scales[8] = 0x05  # its low nibble
    values = tensor("Q4_K", HALF + HALF + bytes(scales) + bytes([0x11] * 128), 256).dequantize()
    assert (values[128:160] == 0.5 * (16 + 5)).all()
    assert not np.delete(values, slice(128, 160)).any()


def test_bf16_is_the_upper_half_of_a_float() -> None:
    assert tensor("BF16", b"\x80\x3f\x00\xc0", 2).dequantize().tolist() == [1.0, -2.0]


def test_no_dimension_is_one_value() -> None:
    assert tensor("F32", np.float32(7).tobytes()).dequantize() == 7


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_every_kind_equals_the_gguf_package_bit_for_bit(kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    layout = KINDS[kind]
    raw = np.random.default_rng(7).integers(0, 256, (6, 4 * layout.block_bytes), np.uint8)
    with np.errstate(all="ignore"):  # random scales include infinities and NaN
        if kind.startswith("F"):
            wanted = raw.view(layout.block).astype(np.float32)
        else:
            wanted = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
        found = Tensor("t", wanted.shape, kind, raw.reshape(-1)).dequantize()
    assert found.dtype == np.float32
    assert np.array_equal(found.view(np.uint32)[~np.isnan(wanted)], wanted.view(np.uint32)[~np.isnan(wanted)])
    assert np.array_equal(np.isnan(found), np.isnan(wanted))


@pytest.mark.parametrize(
    ("kind", "relative_error"),
    [
        ("F32", 0), ("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 0.01), ("Q6_K", 0.04), ("Q5_0", 0.06), ("Q5_1", 0.06),
        ("Q5_K", 0.06), ("Q4_0", 0.11), ("Q4_1", 0.11), ("Q4_K", 0.11),
    ],
)  # fmt: skip
def test_quantised_values_are_near(kind: str, relative_error: float) -> None:
    weights = np.random.default_rng(1).normal(size=(8, 512)).astype(np.float32)
    found = make_tensor("w", weights, kind).dequantize()
    assert found.shape == weights.shape
    assert np.linalg.norm(found - weights) <= relative_error * np.linalg.norm(weights)


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_zeros_stay_zeros(kind: str) -> None:
    assert not make_tensor("w", np.zeros((2, 256)), kind).dequantize().any()


def test_a_large_tensor_equals_its_parts() -> None:
    # more values than one chunk of the reference takes at a time
    weights = np.random.default_rng(2).normal(size=(4500, 1024)).astype(np.float32)
    raw = quantise(weights, "Q8_0")
    whole = Tensor("w", weights.shape, "Q8_0", raw).dequantize()
    row = Tensor("w", (1024,), "Q8_0", raw[-1024 // 32 * 34 :]).dequantize()
    assert np.array_equal(whole[-1], row)


def test_integers_are_no_weights() -> None:
    with pytest.raises(UnsupportedError, match=r"I64.*Q4_K"):
        tensor("I64", bytes(8), 1).dequantize()


def test_bytes_must_match_the_shape() -> None:
    with pytest.raises(CheckpointError, match="'t' has 18 bytes"):
        tensor("Q4_0", bytes(18), 64)
    with pytest.raises(CheckpointError, match="multiples of 32"):
        tensor("Q4_0", bytes(18), 2, 16)
