"""Whole models against the float64 runtime: every family and option, texts and trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headstart.checkpoint import Checkpoint
from headstart.runtime.native import NativeTrunk
from headstart.testing.numpy_runtime import reference_logits
from headstart.testing.passes import prefill_logits, rows_of_one, wanted_logits

GetCheckpoint = Callable[..., Checkpoint]
GetTrunk = Callable[..., NativeTrunk]

OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama untied": {"tied": False},
    "llama biases": {"biases": True},
    "llama factors": {"rotary_factors": True},
    "llama window": {"window": 11},
    "llama, 64 wide heads": {"kind": "Q4_K"},
    "qwen2": {"family": "qwen2"},
    "qwen2 window": {"family": "qwen2", "window": 5},
    "qwen3": {"family": "qwen3"},
    "mistral": {"family": "mistral", "window": 16},
    "one layer": {"num_layers": 1},
    "five layers": {"num_layers": 5},
}
TOKENS = np.random.default_rng(1).integers(0, 300, 70).tolist()


def options_of(name: str) -> dict[str, Any]:
    return {"kind": "F32", **OPTIONS[name]}


def assert_near(found: Any, expected: Any, **tolerance: float) -> None:
    assert np.std(expected) > 0.5  # or the tolerance would mean nothing
    np.testing.assert_allclose(found, expected, **tolerance)


@pytest.mark.parametrize("name", OPTIONS)
def test_texts(name: str, tiny_checkpoint: GetCheckpoint, tiny_trunk: GetTrunk) -> None:
    expected = reference_logits(tiny_checkpoint(**options_of(name)), TOKENS)
    trunk = tiny_trunk(**options_of(name), weights="f32")
    assert_near(prefill_logits(trunk, TOKENS), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("committed", [0, 1, 14, 31])
def test_trees(name: str, committed: int, tiny_checkpoint: GetCheckpoint, tiny_trunk: GetTrunk) -> None:
    random = np.random.default_rng(committed)
    prefix, nodes = TOKENS[:committed], random.integers(0, 300, 24).tolist()
    parents = [int(random.integers(-1, node)) for node in range(24)]
    whole_tree = [*range(-1, committed - 1), *(committed + p if p >= 0 else committed - 1 for p in parents)]
    expected = reference_logits(tiny_checkpoint(**options_of(name)), [*prefix, *nodes], whole_tree)[committed:]
    trunk = tiny_trunk(**options_of(name), weights="f32")
    trunk.make_cache(4)
    if prefix:
        trunk.forward(rows_of_one(prefix))
    found = wanted_logits(trunk, rows_of_one(nodes, committed=committed, parents=parents))
    assert_near(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("weights", "kind", "tolerance"),
    [
        # rows of activations are rounded to 8 bits, and where the cache is f16 to 11
        ("stored", "F16", 0.01),
        ("stored", "Q8_0", 0.4),
        ("stored", "Q4_K", 0.4),
        ("stored", "Q6_K", 0.4),
        ("int8", "F32", 0.4),
        ("int8-row", "F32", 0.6),
        ("bf16", "F32", 0.2),
        ("bf16", "Q8_0", 0.2),
    ],
)
def test_other_formats_come_near(
    weights: str, kind: str, tolerance: float, tiny_checkpoint: GetCheckpoint, tiny_trunk: GetTrunk
) -> None:
    expected = reference_logits(tiny_checkpoint(kind=kind, num_layers=1), TOKENS)
    found = prefill_logits(tiny_trunk(kind=kind, num_layers=1, weights=weights), TOKENS)
    assert_near(found, expected, atol=tolerance, rtol=0)
    assert np.abs(found - expected).std() < tolerance / 5


def test_quantised_weights_expand_to_bf16(tiny_trunk: GetTrunk) -> None:
    stored, expanded = (
        prefill_logits(tiny_trunk(kind="Q8_0", weights=weights), TOKENS) for weights in ("stored", "bf16")
    )
    assert not np.array_equal(stored, expanded)


def test_a_long_context(tiny_checkpoint: GetCheckpoint, tiny_trunk: GetTrunk) -> None:
    tokens = np.random.default_rng(2).integers(0, 300, 512).tolist()
    expected = reference_logits(tiny_checkpoint(kind="F32"), tokens)
    assert_near(prefill_logits(tiny_trunk(kind="F32", threads=2), tokens), expected, atol=1e-4, rtol=0)
