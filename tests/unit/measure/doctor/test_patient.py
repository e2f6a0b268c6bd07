"""Heads files that are opened, mended so that they open, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.checkpoint import Checkpoint, Tensor, open_checkpoint
from headstart.checkpoint.safetensors import read_safetensors, read_safetensors_header
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.errors import CheckpointError
from headstart.measure.doctor import open_patient
from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf


@pytest.fixture
def model(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf"))


@pytest.fixture
def heads(tmp_path: Path, model: Checkpoint) -> Path:
    return write_tiny_heads(tmp_path / "tiny.heads.safetensors", model.path, "eagle3, own", num_guessed=32)


def with_ids(path: Path, ids: list[int]) -> Path:
    """A copy of a heads file with another vocabulary, checked by nobody."""
    metadata, _ = read_safetensors_header(path)
    tensors = read_safetensors(path)
    stored = np.array(ids, "<i4")
    tensors["vocabulary"] = Tensor("vocabulary", stored.shape, "I32", stored.view(np.uint8))
    copy = path.with_name("copy.heads.safetensors")
    write_safetensors(copy, tensors.values(), metadata)
    return copy


def test_a_file_that_opens_is_taken_as_it_is(model: Checkpoint, heads: Path) -> None:
    opened = open_patient(heads, model)
    assert opened.refusal is None
    assert opened.patient.config.kind == "eagle3"
    assert set(opened.patient.weights) == set(opened.fitted.file.shapes)


def test_offsets_in_place_of_ids_are_added_up(model: Checkpoint, heads: Path) -> None:
    ids = sorted([*range(5, 20), *range(40, 57)])
    offsets = [token - place for place, token in enumerate(ids)]
    opened = open_patient(with_ids(heads, offsets), model)
    assert opened.refusal is not None
    assert "more than once" in opened.refusal
    assert opened.patient.vocabulary is not None
    assert opened.patient.vocabulary.tolist() == ids


@pytest.mark.parametrize("ids", [[3] * 31 + [2], [-5] * 32, [10**6] * 32])
def test_what_is_wrong_as_offsets_too_is_refused_for_what_it_is(model: Checkpoint, heads: Path, ids: list[int]) -> None:
    copy = with_ids(heads, ids)
    with pytest.raises(CheckpointError, match="draft vocabulary") as caught:
        open_patient(copy, model)
    assert str(copy) in str(caught.value)


def test_a_file_without_a_vocabulary_is_refused_for_what_it_is(model: Checkpoint, tmp_path: Path) -> None:
    missing = tmp_path / "missing.heads.safetensors"
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_patient(missing, model)
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=9)
    made_for_other = write_tiny_heads(tmp_path / "other.heads.safetensors", other)
    with pytest.raises(CheckpointError, match="trained for"):
        open_patient(made_for_other, model)
