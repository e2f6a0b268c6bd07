"""Training that goes on from the heads of a file: what is taken over, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.checkpoint.heads_file import HeadsFile, open_heads, write_heads  # noqa: E402
from headstart.errors import CheckpointError, ConfigError  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.graft import graft  # noqa: E402
from headstart.train.graft_config import GraftConfig  # noqa: E402
from headstart.train.prompts import Prompt, PromptList  # noqa: E402
from headstart.train.warm_start import read_warm_start  # noqa: E402

PROMPTS = PromptList(tuple(Prompt(turns=(f"Say {word}.",)) for word in ("one", "two", "three", "four")))
FIRST = GraftConfig(
    kind="sequential",
    depth=2,
    draft_vocab_size=60,
    text_tokens=300,
    window=48,
    epochs=1,
    checkpoints=1,
    threads=1,
    seed=1,
)
# learns so little that nothing moves: what comes out is what went in; what is random is otherwise
STILL = replace(FIRST, text_tokens=None, learning_rate=1e-12, seed=0)

pytestmark = pytest.mark.usefixtures("one_thread_and_no_pictures")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf")


@pytest.fixture(scope="module")
def first(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose heads are gone on with."""
    path = tmp_path_factory.mktemp("runs") / "first"
    assert graft(model, path, FIRST, PROMPTS) is not None
    return path


def weights(file: HeadsFile) -> dict[str, np.ndarray[Any, Any]]:
    return {name: file.tensor(name).dequantize() for name in file.shapes}


def test_heads_go_on_from_what_the_file_holds(model: Path, first: Path, tmp_path: Path) -> None:
    given = open_heads(first / "heads.safetensors")
    result = graft(model, tmp_path, STILL, first, from_heads=given.path)
    assert result is not None
    taken, begun_anew = open_heads(result.heads), tmp_path / "anew"
    assert taken.vocabulary is not None
    assert given.vocabulary is not None
    assert taken.vocabulary.tolist() == given.vocabulary.tolist()
    for name, values in weights(given).items():
        # stored in 8 bits twice
        np.testing.assert_allclose(weights(taken)[name], values, atol=np.abs(values).max() / 100, err_msg=name)
    assert graft(model, begun_anew, STILL, first) is not None
    fitted = weights(open_heads(begun_anew / "heads.safetensors"))
    assert any(not np.allclose(fitted[name], values, atol=0.05) for name, values in weights(given).items())


def test_a_vocabulary_in_any_order_is_gone_on_with(model: Path, first: Path, tmp_path: Path) -> None:
    own = graft(model, tmp_path / "own", replace(STILL, own_unembedding=True), first)
    assert own is not None
    given = open_heads(own.heads)
    assert given.vocabulary is not None
    mixed = np.random.default_rng(0).permutation(len(given.vocabulary))
    arrays = weights(given)
    arrays["unembedding"] = arrays["unembedding"][mixed]
    path = tmp_path / "mixed.safetensors"
    write_heads(path, given.header, arrays, given.vocabulary[mixed])
    config = replace(STILL, own_unembedding=True).heads_config(read_config(open_checkpoint(model))[1])
    start = read_warm_start(path, config, open_checkpoint(model))
    assert start.vocabulary is not None
    assert start.vocabulary.tolist() == given.vocabulary.tolist()
    for name, values in weights(given).items():
        # stored in 8 bits twice
        np.testing.assert_allclose(start.weights[name], values, atol=np.abs(values).max() / 100, err_msg=name)
    assert graft(model, tmp_path / "on", replace(STILL, own_unembedding=True), first, from_heads=path) is not None


def test_another_text_does_not_change_what_rows_mean(model: Path, first: Path, tmp_path: Path) -> None:
    other = PromptList((Prompt(turns=("Count.",)), Prompt(turns=("Name a bird.",)), Prompt(turns=("Why?",))))
    config = replace(STILL, text_tokens=200)
    given = open_heads(first / "heads.safetensors").vocabulary
    result = graft(model, tmp_path / "warm", config, other, from_heads=first / "heads.safetensors")
    assert result is not None
    taken = open_heads(result.heads).vocabulary
    assert given is not None
    assert taken is not None
    assert taken.tolist() == given.tolist()
    anew = graft(model, tmp_path / "anew", STILL, tmp_path / "warm")
    assert anew is not None
    chosen = open_heads(anew.heads).vocabulary
    assert chosen is not None
    assert chosen.tolist() != given.tolist()


def test_an_unrolled_module_may_go_on_to_another_depth(model: Path, first: Path, tmp_path: Path) -> None:
    result = graft(model, tmp_path, replace(STILL, depth=3), first, from_heads=first / "heads.safetensors")
    assert result is not None
    assert open_heads(result.heads).header.heads["depth"] == 3


def test_other_heads_to_go_on_from_are_another_run(model: Path, first: Path, tmp_path: Path) -> None:
    assert graft(model, tmp_path, STILL, first, from_heads=first / "heads.safetensors") is not None
    with pytest.raises(ConfigError, match="from_heads was"):
        graft(model, tmp_path, STILL, first, from_heads=tmp_path / "heads.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "eagle3"}, r"kind = sequential \(asked for: eagle3\)"),
        ({"taps": (1, 2)}, r"taps = \(2,\) \(asked for: \(1, 2\)\)"),
        ({"draft_vocab_size": 50}, r"draft_vocab_size = 60 \(asked for: 50\)"),
    ],
)
def test_heads_of_another_making_are_refused(model: Path, first: Path, changes: dict[str, Any], words: str) -> None:
    checkpoint = open_checkpoint(model)
    wanted = replace(FIRST, **changes).heads_config(read_config(checkpoint)[1])
    with pytest.raises(ConfigError, match=words):
        read_warm_start(first / "heads.safetensors", wanted, checkpoint)


def test_a_model_that_was_trained_further_is_served_and_one_of_other_tokens_refused(
    model: Path, first: Path, tmp_path: Path
) -> None:
    tuned = open_checkpoint(write_tiny_gguf(tmp_path / "tuned.gguf", seed=1))
    wanted = FIRST.heads_config(read_config(tuned)[1])
    start = read_warm_start(first / "heads.safetensors", wanted, tuned)
    assert start.weights.keys() == open_heads(first / "heads.safetensors").shapes.keys()
    file = open_heads(first / "heads.safetensors")
    trunk = replace(file.header.trunk, vocabulary_digest="0" * 32)
    write_heads(tmp_path / "other.heads.safetensors", replace(file.header, trunk=trunk), weights(file), file.vocabulary)
    with pytest.raises(CheckpointError, match="whose tokens are others"):
        read_warm_start(tmp_path / "other.heads.safetensors", wanted, tuned)
