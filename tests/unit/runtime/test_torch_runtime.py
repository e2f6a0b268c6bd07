"""Trunks in torch against the float64 runtime, and packed texts against the same texts alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from headstart.architectures.decoder import decoder_program  # noqa: E402
from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import Checkpoint, open_checkpoint  # noqa: E402
from headstart.runtime.torch_attention import CausalAttention  # noqa: E402
from headstart.runtime.torch_runtime import (  # noqa: E402
    PADDING,
    Outcome,
    TextBatch,
    load_weights,
    run_program,
    shifted,
)
from headstart.testing.numpy_runtime import reference_logits, reference_taps  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402

torch.set_num_threads(1)

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"family": "llama"},
    "llama, biases and factors": {"family": "llama", "tied": False, "biases": True, "rotary_factors": True},
    "qwen2": {"family": "qwen2", "tied": False},
    "qwen3": {"family": "qwen3"},
    "mistral, window": {"family": "mistral", "window": 7, "num_layers": 3},
}
TEXTS = [np.random.default_rng(seed).integers(0, 300, length).tolist() for seed, length in enumerate([11, 1, 17, 6])]


def checkpoint_of(tmp_path: Path, **options: Any) -> Checkpoint:
    return open_checkpoint(write_tiny_gguf(tmp_path / "model.gguf", **{"kind": "F32", **options}))


def packed(texts: list[list[int]], window: int, padding_token: int = 0) -> TextBatch:
    """All texts in one row."""
    missing = window - sum(map(len, texts))
    documents = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    return TextBatch(
        torch.tensor([[*(token for text in texts for token in text), *[padding_token] * missing]]),
        torch.tensor([[*documents.tolist(), *[PADDING] * missing]]),
        torch.tensor([[*(place for text in texts for place in range(len(text))), *[0] * missing]]),
    )


def run_trunk(checkpoint: Checkpoint, batch: TextBatch, taps: tuple[int, ...] = ()) -> tuple[Outcome, Tensor]:
    """The outcome, and logits [B, T, V]."""
    _, config = read_config(checkpoint)
    weights = load_weights(checkpoint, torch.float64)
    outcome = run_program(decoder_program(config, taps), weights, config.rotary, batch, CausalAttention(batch))
    return outcome, outcome.hidden @ weights[outcome.unembedding].T


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_texts_get_the_logits_that_the_float64_runtime_gives_each_alone(name: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, **FAMILIES[name])
    _, logits = run_trunk(checkpoint, packed(TEXTS, 40))
    begin = 0
    for text in TEXTS:
        expected = reference_logits(checkpoint, text)
        assert expected.std() > 0.5  # or the tolerance would mean nothing
        np.testing.assert_allclose(logits[0, begin : begin + len(text)].numpy(), expected, atol=1e-9, rtol=0)
        begin += len(text)


def test_quantised_weights_are_those_of_the_file(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, kind="Q8_0")
    _, logits = run_trunk(checkpoint, packed(TEXTS[:1], 11))
    np.testing.assert_allclose(logits[0].numpy(), reference_logits(checkpoint, TEXTS[0]), atol=1e-9, rtol=0)


def test_taps_are_the_outputs_of_layers(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, num_layers=3)
    outcome, _ = run_trunk(checkpoint, packed(TEXTS, 35), taps=(0, 2, 3))
    assert outcome.kept is not None
    expected = np.concatenate([reference_taps(checkpoint, text, (0, 2, 3)) for text in TEXTS])
    np.testing.assert_allclose(outcome.kept[0].numpy(), expected, atol=1e-9, rtol=0)


def test_padding_never_matters_and_is_finite(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path)
    length = sum(map(len, TEXTS))
    _, plain = run_trunk(checkpoint, packed(TEXTS, length))
    for token in (0, 299):
        _, logits = run_trunk(checkpoint, packed(TEXTS, length + 9, token))
        assert bool(logits.isfinite().all())
        torch.testing.assert_close(logits[:, :length], plain, rtol=0, atol=1e-12)


def test_what_was_kept_moves_to_the_row_after_it_within_a_document() -> None:
    batch = packed([[1, 2, 3], [4], [5, 6]], 8)
    kept = torch.arange(1.0, 9.0).reshape(1, 8, 1)
    assert shifted(kept, batch)[0, :6, 0].tolist() == [0, 1, 2, 0, 0, 5]
    assert not shifted(kept, batch)[0, 6:].any()


def test_a_run_of_equal_numbers_is_a_document() -> None:
    """In each window for itself, even if the number goes on in the next one."""
    documents = torch.tensor([[0, 0, 1, PADDING, PADDING], [PADDING, 1, 1, 1, 0]])
    batch = TextBatch(torch.zeros_like(documents), documents, torch.zeros_like(documents))
    assert batch.runs() == [(2, False), (1, False), (2, True), (1, True), (3, False), (1, False)]
