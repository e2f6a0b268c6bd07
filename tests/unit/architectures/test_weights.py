"""Every weight of the program found, every tensor of the file used."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from headstart.architectures.decoder import decoder_program
from headstart.architectures.reading import read_config
from headstart.architectures.weights import PlacedWeight, place_weights
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.checkpoint.tensor import Tensor
from headstart.errors import CheckpointError
from headstart.testing.quantise import make_tensor
from headstart.testing.tiny_models import write_tiny_gguf


def place(checkpoint: Checkpoint) -> dict[str, PlacedWeight]:
    family, config = read_config(checkpoint)
    return place_weights(checkpoint, family, config, decoder_program(config))


def changed(checkpoint: Checkpoint, name: str, tensor: Tensor | None) -> Checkpoint:
    """The checkpoint with one tensor added, replaced or (`None`) taken away."""
    others = {key: value for key, value in checkpoint.tensors.items() if key != name}
    return dataclasses.replace(checkpoint, tensors=others | ({} if tensor is None else {name: tensor}))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf"))


def test_names_of_the_program_lead_to_the_files_tensors(checkpoint: Checkpoint) -> None:
    placed = place(checkpoint)
    assert placed["layers.1.mlp.down"].tensor is checkpoint.tensors["blk.1.ffn_down.weight"]
    assert placed["embedding"].tensor is checkpoint.tensors["token_embd.weight"]
    assert {weight.tensor.name for weight in placed.values()} == set(checkpoint.tensors)


def test_rows_that_gguf_interleaves_are_put_back(checkpoint: Checkpoint) -> None:
    placed = place(checkpoint)
    order = placed["layers.0.attention.q"].row_order
    assert order is not None
    # heads of 16: pair i lies at 2i and 2i + 1, and belongs at i and i + 8
    assert order[:3].tolist() == [0, 2, 4]
    assert order[8:11].tolist() == [1, 3, 5]
    assert sorted(order.tolist()) == list(range(64))
    assert placed["layers.0.attention.v"].row_order is None


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight"])
def test_a_missing_tensor_is_named(checkpoint: Checkpoint, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"'{name}' is missing"):
        place(changed(checkpoint, name, None))


def test_a_misshapen_tensor_is_named(checkpoint: Checkpoint) -> None:
    name = "blk.0.attn_k.weight"
    with pytest.raises(CheckpointError, match=r"shape \[64, 64\]; the settings say \[32, 64\]"):
        place(changed(checkpoint, name, make_tensor(name, np.zeros((64, 64)))))


def test_a_tensor_without_a_place_is_refused(checkpoint: Checkpoint) -> None:
    name = "blk.0.attn_sinks.weight"
    with pytest.raises(CheckpointError, match=f"'{name}' has no place in a llama model"):
        place(changed(checkpoint, name, make_tensor(name, np.zeros(4))))
