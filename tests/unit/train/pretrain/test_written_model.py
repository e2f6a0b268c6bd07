from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headstart.engine.loading import load_parts
from headstart.errors import UnsupportedError
from headstart.train.corpus import open_corpus
from headstart.train.pretrain.blueprint import make_blueprint
from headstart.train.pretrain.config import PretrainConfig

torch = pytest.importorskip("torch")

from headstart.train.pretrain.parts import make_layout, make_model  # noqa: E402
from headstart.train.pretrain.written_model import Layout, ModelWriter  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

MakeConfig = Callable[..., PretrainConfig]


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def layout_of(config: PretrainConfig) -> Layout:
    corpus = open_corpus(config.data.path)
    return make_layout(make_blueprint(config, corpus.vocab_size), corpus, "tiny", {})


def weights_of(config: PretrainConfig, seed: int) -> dict[str, Tensor]:
    model = make_model(make_blueprint(config, 257), seed)
    return {name: weight.detach() for name, weight in model.weights().items()}


def test_a_kill_between_two_models_leaves_no_heads_of_another(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is killed while a model takes the place of another, what lies there runs."""
    config, place = tiny_run(), tmp_path / "model"
    (tmp_path / "run").mkdir()
    writer = ModelWriter(layout_of(config), tmp_path / "run", place)
    first, second = weights_of(config, 0), weights_of(config, 1)
    original = os.replace
    for last in range(1, 7):  # of the six files that are moved
        writer.place(first, {})
        left = [last]

        def replace_or_die(source: Any, target: Any, left: list[int] = left) -> None:
            if Path(target).parent == place:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
            original(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace_or_die)
            with pytest.raises(Killed):
                writer.place(second, {})
        found = load_parts(str(place), draft="auto", threads=1).heads
        assert found is None or not found.notes


def test_other_files_there_are_left_alone(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run({"n": 1})
    (tmp_path / "notes.txt").write_text("mine")
    writer = ModelWriter(layout_of(config), tmp_path / "run", tmp_path)
    (tmp_path / "run").mkdir()
    assert writer.place(weights_of(config, 0), {}) is None
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list((tmp_path / "run").iterdir())


def test_a_model_that_the_layout_has_no_form_for_is_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run({"n": 1})
    layout = layout_of(config)
    settings = {**layout.settings, "rope_theta": 5.0}
    changed = Layout(trunk=layout.trunk, heads=None, settings=settings, files=layout.files, recipe={})
    with pytest.raises(UnsupportedError, match="another architecture"):
        ModelWriter(changed, tmp_path, tmp_path / "model").write(weights_of(config, 0))
