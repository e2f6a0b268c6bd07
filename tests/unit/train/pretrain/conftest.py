"""A small corpus, and runs on it that take a second or two."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.train.corpus import CorpusConfig, prepare_corpus
from headstart.train.pretrain.config import DataConfig, PretrainConfig, TrainConfig
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bytes of some hundred little documents."""
    sources = tmp_path_factory.mktemp("sources")
    for number in range(120):
        lines = "".join(f"def f{number}_{line}(x):\n    return x + {line * number}\n" for line in range(3 + number % 5))
        (sources / f"m{number}.py").write_text(lines)
    folder = tmp_path_factory.mktemp("corpus") / "data"
    prepare_corpus(folder, CorpusConfig(sources=(f"tree:{sources}:*.py",), validation_share=0.2))
    return folder


@pytest.fixture
def tiny_run(small_corpus: Path) -> Callable[..., PretrainConfig]:
    """`tiny_run(heads={...}, train={...})`: settings of a run of some steps."""

    def make(
        heads: dict[str, Any] | None = None, train: dict[str, Any] | None = None, model: dict[str, Any] | None = None
    ) -> PretrainConfig:
        sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "intermediate_size": 64, "context": 256}
        steps = {"steps": 6, "batch_windows": 4, "micro_windows": 2, "threads": 1, "device": "cpu"}
        return PretrainConfig(
            model=ModelConfig(**(sizes if model is None else model)),
            heads=PretrainHeads(**({"n": 3} | (heads or {}))),
            data=DataConfig(path=str(small_corpus), window=48, validation_windows=3),
            train=TrainConfig(**(steps | {"validate_every": 3, "measure_every": 6} | (train or {}))),
        )

    return make


@pytest.fixture(autouse=True)
def _one_thread_and_no_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)  # drawing takes longer than training here
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        yield
