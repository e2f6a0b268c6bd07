"""That both sides of the comparison of speeds train the same model on the same text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from headstart.architectures.names import stored_name  # noqa: E402
from headstart.train.corpus import Corpus, CorpusConfig, CorpusWindows, open_corpus, prepare_corpus  # noqa: E402
from headstart.train.pretrain.batch import count_rows, labelled_text  # noqa: E402
from headstart.train.pretrain.blueprint import make_blueprint  # noqa: E402
from headstart.train.pretrain.config import DataConfig, PretrainConfig  # noqa: E402
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads  # noqa: E402
from headstart.train.pretrain.parts import make_model  # noqa: E402
from plain_training import PlainModel, TransformersModel  # noqa: E402
from training_throughput import SHAPES, measure  # noqa: E402


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Forty little documents as bytes."""
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"line {number} and a few more words, {'so ' * (number % 9)}on\n" * 4)
    folder = tmp_path / "corpus"
    prepare_corpus(folder, CorpusConfig(sources=(f"tree:{tmp_path}:*.txt",), validation_share=0.2))
    return open_corpus(folder)


def test_sides_have_as_many_weights_and_take_the_same_steps(corpus: Corpus) -> None:
    sizes = ModelConfig(hidden_size=32, num_layers=4, num_heads=2, intermediate_size=32)
    shape = replace(SHAPES[0], model=sizes, window=64, batch_windows=2, steps=1)
    cell = measure(shape, corpus, "float32", rounds=3)
    norms = 3 * 32  # a final norm of each head
    assert cell.parameters["n = 4"] == cell.parameters["n = 1"] + norms
    assert {count for side, count in cell.parameters.items() if side != "n = 4"} == {cell.parameters["plain"]}
    assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in cell.seconds.values())
    assert cell.documents_per_window > 1
    assert cell.work["n = 1"] == cell.work["plain"] == 1 < cell.work["n = 4"]


def test_the_plain_models_are_the_trunk_itself(corpus: Corpus) -> None:
    """With the trunk's weights, and no borders in the text, all three have its loss."""
    pytest.importorskip("transformers")
    sizes = ModelConfig(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=32)
    config = PretrainConfig(model=sizes, heads=PretrainHeads(n=1), data=DataConfig(path=str(corpus.path), window=16))
    blueprint = make_blueprint(config, corpus.vocab_size)
    ours = make_model(blueprint, 0)
    windows = CorpusWindows(corpus.train, 16, 3, seed=0).batch(0)
    windows.documents[:], windows.positions[:] = 0, range(16)
    batch = labelled_text(windows, torch.device("cpu"))
    expected = ours(batch, (), count_rows(None, batch, 0)).loss.item()
    plain, library = PlainModel(blueprint.trunk), TransformersModel(blueprint.trunk)
    with torch.no_grad():
        for name, weight in ours.trunk.weights().items():
            plain.state_dict()[_plain_name(name)].copy_(weight)
            library.state_dict()[f"model.{stored_name(name, 'huggingface')}"].copy_(weight)
    assert plain(batch.text.tokens).item() == pytest.approx(expected, rel=1e-5)
    assert library(batch.text.tokens).item() == pytest.approx(expected, rel=1e-5)


def _plain_name(name: str) -> str:
    for ours, theirs in (
        ("layers.", "blocks."), (".norm", "_norm"), ("final_norm", "norm"), ("mlp.", ""),
        ("attention.q", "attention.query"), ("attention.k", "attention.key"), ("attention.v", "attention.value"),
    ):  # fmt: skip
        name = name.replace(ours, theirs)
    return f"{name}.weight"
