"""Trained trunks as folders: every family comes back with its settings and weights, or is refused before it is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.errors import UnsupportedError  # noqa: E402
from headstart.runtime.torch_runtime import load_weights  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.joint_model import ModelFolder  # noqa: E402

YARN = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 128,
}
LINEAR = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": False, "biases": True},
        {"family": "qwen2"},
        {"family": "qwen2", "window": 8},
        {"family": "qwen3", "tied": False},
        {"family": "mistral", "window": 8},
        {"metadata": YARN},
        {"metadata": LINEAR},
    ],
    ids=str,
)
def test_a_model_comes_back_as_it_was(options: dict[str, Any], tmp_path: Path) -> None:
    source = open_checkpoint(write_tiny_gguf(tmp_path / "model.gguf", **options))
    weights = {name: 1.5 * weight for name, weight in load_weights(source).items()}
    folder = ModelFolder(tmp_path, source, "trained")
    folder.write(weights)
    kept = folder.keep()
    assert kept.path == tmp_path / "model"
    assert read_config(kept)[1] == read_config(source)[1]
    found = load_weights(kept)
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(found[name], weight.bfloat16().float()), name
    # and from a folder, whose settings and files are taken over
    again = ModelFolder(tmp_path / "second", kept, "again")
    second = again.write(found)
    assert second.metadata == {**kept.metadata, "_name_or_path": "again"}
    assert second.digest() == kept.digest()


@pytest.mark.parametrize("options", [{"family": "mistral", "biases": True}, {"family": "llama", "window": 8}], ids=str)
def test_a_model_that_the_layout_has_no_form_for_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    source = open_checkpoint(write_tiny_gguf(tmp_path / "model.gguf", **options))
    (tmp_path / "run").mkdir()
    folder = ModelFolder(tmp_path / "run", source, "trained")
    with pytest.raises(UnsupportedError, match="read back, it would have another architecture"):
        folder.write(load_weights(source))
    assert not list((tmp_path / "run").iterdir())  # a run with another model may begin there
