"""A model's folder as it is written, read back: settings, weights, and how text is split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headstart.checkpoint import open_checkpoint
from headstart.checkpoint.huggingface_writing import tokenizer_files, write_model_folder
from headstart.errors import CheckpointError
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor

TEXTS = ("hello hello", " he  hell", "<s>hello<end> he", "Größe, 12 👍\n\thell")


def weights() -> list:
    return [make_tensor("model.norm.weight", np.arange(4.0)), make_tensor("lm_head.weight", np.ones((3, 32)))]


@pytest.mark.parametrize("kind", ["byte_level_metadata", "piece_metadata"])
@pytest.mark.parametrize("adds", [True, False])
def test_the_tokenizer_of_a_gguf_file_reads_and_writes_as_before(
    kind: str, adds: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    metadata = request.getfixturevalue(kind) | {
        "tokenizer.ggml.add_bos_token": adds,
        "tokenizer.ggml.add_eos_token": adds,
    }
    write_gguf(tmp_path / "model.gguf", metadata, weights())
    source = open_checkpoint(tmp_path / "model.gguf")
    write_model_folder(tmp_path / "written", {}, weights(), tokenizer_files(source))
    old, new = source.tokenizer(), open_checkpoint(tmp_path / "written").tokenizer()
    assert new.digest() == old.digest()
    assert new.special.names == old.special.names
    assert new.chat_template == old.chat_template
    for text in TEXTS:
        assert new.encode(text) == old.encode(text), text
        assert new.decode(new.encode(text)) == old.decode(old.encode(text)), text


def test_other_programs_put_the_same_tokens_around_a_text(byte_level_metadata: dict, tmp_path: Path) -> None:
    """They go by tokenizer.json alone."""
    tokenizers = pytest.importorskip("tokenizers")
    write_gguf(tmp_path / "model.gguf", byte_level_metadata | {"tokenizer.ggml.add_bos_token": True}, weights())
    source = open_checkpoint(tmp_path / "model.gguf")
    backend = tokenizers.Tokenizer.from_str(tokenizer_files(source)["tokenizer.json"].decode())
    assert backend.encode("hello").ids == source.tokenizer().encode("hello")


def test_a_folders_own_files_are_copied_and_nothing_else_is(byte_level_metadata: dict, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", byte_level_metadata, weights())
    files = tokenizer_files(open_checkpoint(tmp_path / "model.gguf"))
    files |= {"additional_chat_templates/tool_use.jinja": b"tools", "secrets.json": b"{}"}
    first, second = tmp_path / "first", tmp_path / "second"
    write_model_folder(first, {"model_type": "llama"}, weights(), files)
    copied = tokenizer_files(open_checkpoint(first))
    assert copied == {name: content for name, content in files.items() if name != "secrets.json"}
    write_model_folder(second, {"model_type": "llama"}, weights(), copied)
    assert open_checkpoint(second).tokenizer().templates["tool_use"] == "tools"


def test_what_a_folder_held_before_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_model_folder(folder, {"a": 1}, weights(), {"chat_template.jinja": b"old"})
    write_model_folder(folder, {"b": 2}, weights()[:1], {})
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((folder / "config.json").read_text()) == {"b": 2}
    assert list(open_checkpoint(folder).tensors) == ["model.norm.weight"]


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_model_folder(tmp_path / "file" / "model", {}, weights(), {})
