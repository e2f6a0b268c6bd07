from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headstart.errors import ConfigError, UnsupportedError
from headstart.train.pretrain.config import DataConfig, PretrainConfig, TrainConfig
from headstart.train.pretrain.config_file import read_pretrain_config
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads

DATA = DataConfig(sources=("stdlib",))


def read(tmp_path: Path, text: str, *changes: str) -> PretrainConfig:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return read_pretrain_config(path, changes)


SMALL = """
[model]
hidden_size = 64
num_heads = 2
[heads]
n = 3
weight = 1
[data]
sources = ["stdlib", "docs"]
[train]
steps = 10
minutes = 2
"""


def test_a_file_says_everything_and_changes_go_over_it(tmp_path: Path) -> None:
    config = read(tmp_path, SMALL)
    assert config.data.sources == ("stdlib", "docs")
    assert (config.heads.n, config.heads.weight, config.train.minutes) == (3, "1", 2.0)
    changed = read(
        tmp_path, SMALL, "heads.n=4", "heads.kind=sequential", "train.learning_rate=1e-4", 'data.sources=["docs"]',
        "model.tied=true", "heads.weight=0.3,0.1@0.5",
    )  # fmt: skip
    assert (changed.heads.n, changed.heads.kind, changed.heads.weight) == (4, "sequential", "0.3,0.1@0.5")
    assert (changed.train.learning_rate, changed.model.tied, changed.data.sources) == (1e-4, True, ("docs",))


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("[modl]\n", (), "Did you mean 'model'"),
        ("model = 3\n", (), "'model' is no table"),
        ("[train]\nlearning_rat = 1\n", (), "[train] has no key 'learning_rat'. Did you mean 'learning_rate'"),
        ("[train]\nsteps = 1.5\n", (), "train.steps = 1.5: it must be a whole number"),
        ("[train]\nsteps = true\n", (), "it must be a whole number"),
        ("[data]\nsources = 'stdlib'\n", (), "it must be a list"),
        ("[model\n", (), "not a TOML file"),
        (SMALL, ("steps=3",), "give TABLE.KEY=VALUE"),
        (SMALL, ("train.steps",), "give TABLE.KEY=VALUE"),
        (SMALL, ("trian.steps=3",), "the table one of model, heads, data, train"),
        (SMALL, ("heads.knd=parallel",), "Did you mean 'kind'"),
        (SMALL, ("train.steps=many",), "it must be a whole number"),
    ],
)
def test_what_a_file_or_a_change_cannot_say(tmp_path: Path, text: str, changes: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as failure:
        read(tmp_path, text, *changes)
    assert words in str(failure.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_pretrain_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (ModelConfig, {"family": "gpt2"}, "one of llama, mistral, qwen2, qwen3"),
        (ModelConfig, {"hidden_size": 100, "num_heads": 8}, "a multiple of num_heads"),
        (ModelConfig, {"start": "x", "num_layers": 2}, "model.num_layers has no effect"),
        (ModelConfig, {"rope_theta": 0.0}, "above 0"),
        (PretrainHeads, {"n": 0}, "from 1 to 64"),
        (PretrainHeads, {"kind": "medusa"}, "one of parallel, sequential"),
        (PretrainHeads, {"curriculum": "backward"}, "one of none, forward, reverse"),
        (PretrainHeads, {"n": 1, "weight": "0.3"}, "heads.weight has no effect with heads.n = 1"),
        (PretrainHeads, {"unrolled": True}, "for sequential heads"),
        (PretrainHeads, {"kind": "sequential", "own_unembedding": True}, "for parallel heads"),
        (PretrainHeads, {"kind": "sequential", "form": "linear"}, "for parallel heads"),
        (PretrainHeads, {"form": "linear", "equal_parameters": True}, "linear heads have none"),
        (PretrainHeads, {"depth_weights": "1,1"}, "2 weights for 3 depths"),
        (DataConfig, {}, "one of the two"),
        (DataConfig, {"path": "a", "sources": ("stdlib",)}, "one of the two"),
        (DataConfig, {"path": "a", "tokenizer": "bytes"}, "has no effect"),
        (DataConfig, {"path": "a", "window": 1}, "at least 2"),
        (TrainConfig, {"batch_windows": 0}, "at least 1"),
        (TrainConfig, {"learning_rate": float("nan")}, "finite and above 0"),
        (TrainConfig, {"schedule": "sine"}, "one of cosine, linear, wsd, constant"),
        (TrainConfig, {"precision": "fp8"}, "one of float32, bfloat16"),
        (TrainConfig, {"ema": 1.0}, "below 1"),
        (TrainConfig, {"spike_factor": 0.5}, "above 1, or 0"),
        (TrainConfig, {"warmup_share": 1.5}, "between 0 and 1"),
        (TrainConfig, {"track": ("mlflow",)}, "one of tensorboard, trackio, wandb"),
        (TrainConfig, {"device": "tpu"}, "one of auto, cpu, cuda"),
    ],
)  # fmt: skip
def test_values_out_of_their_range(kind: type, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as failure:
        kind(**values)
    assert words in str(failure.value)


def test_tables_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="equal_parameters"):
        PretrainConfig(model=ModelConfig(start="x"), heads=PretrainHeads(equal_parameters=True), data=DATA)
    with pytest.raises(ConfigError, match="has its tokenizer"):
        PretrainConfig(model=ModelConfig(start="x"), data=DataConfig(sources=("stdlib",), tokenizer="bytes"))


def test_equal_parameters_take_layers_off_the_trunk() -> None:
    sizes = ModelConfig(num_layers=6)
    heads = PretrainHeads(n=4, equal_parameters=True)
    trunk = sizes.trunk_config(257, 64, heads.removed_layers)
    assert trunk.num_layers == 3
    parallel = heads.heads_config(trunk)
    assert parallel is not None
    assert (parallel.taps, parallel.num_modules) == ((2,), 3)
    unrolled = PretrainHeads(n=4, kind="sequential", unrolled=True, equal_parameters=True)
    assert unrolled.removed_layers == 1
    with pytest.raises(ConfigError, match="none would be left"):
        ModelConfig(num_layers=3).trunk_config(257, 64, heads.removed_layers)


def test_sequential_heads_read_the_last_state() -> None:
    trunk = ModelConfig(num_layers=6).trunk_config(257, 64, 0)
    modules = PretrainHeads(n=3, kind="sequential").heads_config(trunk)
    assert modules is not None
    assert (modules.taps, modules.num_modules, modules.depth) == ((6,), 2, 2)
    assert PretrainHeads(n=1).heads_config(trunk) is None


def test_sizes_that_no_kernel_runs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="multiple of 32"):
        ModelConfig(hidden_size=48, num_heads=3).trunk_config(257, 64, 0)
    with pytest.raises(ConfigError, match="do not fit"):
        ModelConfig(context=32).trunk_config(257, 64, 0)


def test_weights_of_depths_over_a_run() -> None:
    heads = PretrainHeads(n=3, depth_weights="decay:0.5", weight="1,0.1@0.5", curriculum="forward")
    assert heads.weights_at(0, 12) == ()
    assert heads.weights_at(4, 12) == (1.0,)
    assert heads.weights_at(8, 12) == pytest.approx((0.1, 0.05))
    assert PretrainHeads(n=1).weights_at(5, 12) == ()


def test_what_cannot_change_the_weights_is_no_setting() -> None:
    settings = PretrainConfig(data=DATA).settings()
    assert settings["heads.n"] == 4
    assert settings["data.sources"] == ["stdlib"]
    assert not {"train.threads", "train.save_every_s", "train.track"} & settings.keys()
