from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from headstart.cli.graft_joint_flags import JointFlags
from headstart.errors import ConfigError
from headstart.testing.command_line import run_command
from headstart.train.graft_config import GraftConfig
from headstart.train.joint_config import JointConfig

GRAFT = GraftConfig(kind="eagle3")
TINY = ("--text-tokens", "300", "--window", "48", "--epochs", "1", "--checkpoints", "1", "--depth", "2",
        "--draft-vocabulary", "100", "--threads", "1")  # fmt: skip


def test_the_defaults_are_the_librarys_and_are_told_as_such() -> None:
    config = JointConfig(graft=GRAFT)
    assert JointFlags(joint=True).to_config(GRAFT) == config
    assert JointFlags().to_config(GRAFT) is None
    help_text = " ".join(run_command("graft", "--help").out.split())
    for field in dataclasses.fields(JointFlags):
        if field.name == "joint":
            continue
        flag = f"--{field.name.replace('_', '-')}"
        own_help = help_text.split(f" {flag} FLOAT", 1)[1].split(" FLOAT ", 1)[0]
        value = np.format_float_positional(getattr(config, field.name), trim="-")
        assert f"By default {value}." in own_help, flag


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(JointFlags) if field.name != "joint"])
def test_every_flag_reaches_the_config_and_has_no_effect_alone(name: str) -> None:
    config = JointFlags(joint=True, **{name: 0.125}).to_config(GRAFT)
    assert config == JointConfig(graft=GRAFT, **{name: 0.125})
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} has no effect without --joint"):
        JointFlags(**{name: 0.125}).to_config(GRAFT)


def test_a_whole_run_and_a_model_that_goes_too_far(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # drawing takes longer than training here
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"Say {word}.\n" for word in ("one", "two", "three", "four", "five")))
    run = tmp_path / "run"
    command = ("graft", tiny_model, "--kind", "medusa", "--out", run, "--prompts", prompts, *TINY, "--joint")
    outcome = run_command(*command, "--max-drift", "1e-9")
    assert outcome.status == 1
    assert "has gone" in outcome.err.splitlines()[-1]
    assert "Nothing was kept" in outcome.err.splitlines()[-1]
    outcome = run_command(*command)
    assert outcome.status == 0
    *_, changed, use = outcome.out.splitlines()
    assert "nats a token from what it was, and writes other words" in changed
    assert use == f"Use them: headstart generate {run / 'model'} PROMPT --draft heads:{run / 'heads.safetensors'}"
    assert any(line.startswith("Both at once: 100 %") for line in outcome.err.splitlines())
    document = run_command(*command, "--json").document
    assert document["model"] == tiny_model
    assert document["model_folder"] == str(run / "model")
    assert f"{document['drift']:.4f} nats a token" in changed
    assert f"reach {document['alone']['tau']:.2f}" in changed
