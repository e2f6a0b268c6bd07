"""What the documents say of a run's file is what it can hold."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from headstart.measure.workload import read_prompts
from headstart.train.pretrain.config import DataConfig, PretrainConfig, TrainConfig
from headstart.train.pretrain.config_file import read_pretrain_config
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads

ROOT = Path(__file__).parents[4]
GUIDE = ROOT / "docs" / "how-to" / "pretrain.md"


def test_the_file_in_the_guide_is_all_defaults(tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block is not None
    path = tmp_path / "run.toml"
    path.write_text(block[1])
    data = DataConfig(sources=("stdlib",), tokenizer="bytes")
    assert read_pretrain_config(path, ["train.steps=0"]) == PretrainConfig(data=data)
    said = set(re.findall(r"^#? ?(\w+) = ", block[1], re.MULTILINE))
    known = {field.name for table in (ModelConfig, PretrainHeads, DataConfig, TrainConfig) for field in fields(table)}
    assert known - said == {"path", "minutes"}  # named in a comment


def test_the_run_of_the_tutorial_can_be_read() -> None:
    config = read_pretrain_config(ROOT / "examples" / "tutorial.toml")
    assert (config.heads.n, config.data.sources) == (4, ("stdlib",))
    assert config.train.minutes < 5


def test_the_prompts_of_the_tutorial_are_beginnings_of_code() -> None:
    prompts = read_prompts(ROOT / "examples" / "tutorial.jsonl")
    assert len(prompts) == 8
