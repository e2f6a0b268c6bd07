"""What 8 bits make of weights: how near, and that a runtime which quantises floats itself gets the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.checkpoint import KINDS, Tensor, open_checkpoint
from headstart.checkpoint.heads_storage import restore_weight, store_weights
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.passes import prefill_logits
from headstart.testing.tiny_models import write_tiny_gguf


def held(weights: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights as int8 holds them."""
    stored = {tensor.name: tensor for tensor in store_weights(weights, "int8")}
    return {name: restore_weight(stored, name) for name in weights}


def test_int8_of_zeros_and_of_next_to_nothing() -> None:
    values = np.zeros((2, 32), np.float32)
    values[1] = 1e-9  # below what the least float16 scale can tell from zero
    assert not held({"w": values})["w"].dequantize().any()


def test_int8_rounds_as_the_native_runtime_does(tmp_path: Path) -> None:
    """A trunk quantised on loading, and one whose matrices are held as heads are, give the same bits."""
    native = pytest.importorskip("headstart.runtime.native")
    floats = open_checkpoint(write_tiny_gguf(tmp_path / "floats.gguf", kind="F32"))
    matrices = {name: tensor.dequantize() for name, tensor in floats.tensors.items() if len(tensor.shape) == 2}
    codes = held(matrices)
    tensors = [codes.get(name, tensor) for name, tensor in floats.tensors.items()]
    metadata = {key: list(value) if isinstance(value, tuple) else value for key, value in floats.metadata.items()}
    write_gguf(tmp_path / "codes.gguf", metadata, tensors)

    quantised_on_loading = native.load_trunk(floats, threads=1, weights="int8", cache="f16")
    held_as_codes = native.load_trunk(open_checkpoint(tmp_path / "codes.gguf"), threads=1, cache="f16")
    text = range(40, 60)
    assert prefill_logits(quantised_on_loading, text).tobytes() == prefill_logits(held_as_codes, text).tobytes()


@given(seed=st.integers(0, 1 << 32), exponent=st.integers(-20, 4))
def test_no_int8_value_is_off_by_more_than_half_a_step(seed: int, exponent: int) -> None:
    values = (np.random.default_rng(seed).normal(0, 1, (3, 64)) * 2.0**exponent).astype(np.float32)
    tensor = held({"w": values})["w"]
    steps = tensor.data.view(KINDS["Q8_0"].block)["scale"].astype(np.float32)[:, None]
    error = np.abs(tensor.dequantize().reshape(-1, 32) - values.reshape(-1, 32))
    # the largest value may lie beyond code 127 by what the scale was rounded down: 2^-11 of it, or half a subnormal
    assert np.all(error <= steps / 2 + 127 * np.maximum(steps * 2.0**-11, 2.0**-25))
