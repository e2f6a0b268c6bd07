"""What headers say, read whether or not the bytes after them are there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headstart.checkpoint.gguf import declared_gguf, read_gguf
from headstart.checkpoint.heads_file import is_heads_file
from headstart.checkpoint.safetensors import declared_safetensors
from headstart.errors import CheckpointError
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor
from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf


def write_header(path: Path, header: dict[str, object]) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


def test_a_safetensors_header_needs_no_data_and_no_known_kind(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "a": {"dtype": "F8_E8M0", "shape": [4, 2], "data_offsets": [0, 8]}}
    (tensor,) = declared_safetensors(write_header(tmp_path / "h.safetensors", header))
    assert (tensor.name, tensor.kind, tensor.shape, tensor.num_bytes) == ("a", "F8_E8M0", (4, 2), 8)
    assert tensor.num_elements == 8


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]},
    ],
)
def test_a_malformed_entry_is_refused(entry: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="truncated or altered"):
        declared_safetensors(write_header(tmp_path / "h.safetensors", {"a": entry}))


def test_a_gguf_header_says_what_the_whole_file_does(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    metadata, declared = declared_gguf(path)
    file = read_gguf(path)
    assert set(metadata) == set(file.metadata)
    assert {tensor.name: (tensor.shape, tensor.kind, tensor.num_bytes) for tensor in declared} == {
        name: (tensor.shape, tensor.kind, tensor.data.nbytes) for name, tensor in file.tensors.items()
    }


def test_a_gguf_header_that_ends_within_an_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, {"general.architecture": "llama"}, [make_tensor("some.weight", np.ones(4, np.float32))])
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"some.weight") + 4])
    with pytest.raises(CheckpointError, match=r"the file ends within|more than the file has room for"):
        declared_gguf(path)


def test_a_heads_file_is_told_from_other_safetensors(tmp_path: Path) -> None:
    heads = write_tiny_heads(tmp_path / "m.heads.safetensors", write_tiny_gguf(tmp_path / "m.gguf"))
    assert is_heads_file(heads)
    assert not is_heads_file(write_header(tmp_path / "other.safetensors", {}))
