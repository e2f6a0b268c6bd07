from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from headstart.cli.phases import PhaseProgress
from headstart.testing.command_line import Outcome, run_command

RUN = """
[model]
hidden_size = 32
num_layers = 2
num_heads = 2
context = 256

[heads]
n = 3

[data]
sources = ["tree:{sources}:*.py"]
window = 48
validation_windows = 2

[train]
steps = 3
batch_windows = 2
device = "cpu"
threads = 1
"""


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    sources = tmp_path / "sources"
    sources.mkdir()
    for number in range(80):
        (sources / f"m{number}.py").write_text(f"def f{number}(x):\n    return x + {number}\n" * (2 + number % 3))
    path = tmp_path / "run.toml"
    path.write_text(RUN.format(sources=sources))
    return path


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that need torch."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # drawing takes longer than training here


def train(run_file: Path, out: Path, *arguments: str) -> Outcome:
    return run_command("train", run_file, "--out", out, *arguments)


def test_a_whole_run(run_file: Path, tmp_path: Path, trains: None) -> None:
    out = tmp_path / "model"
    outcome = train(run_file, out)
    assert outcome.status == 0
    first, held_out, measured, *_, use = outcome.out.splitlines()
    assert "million parameters, 3 steps" in first
    assert "bits a byte; loss by head" in held_out
    assert "tokens a round on held-out prompts" in measured
    assert use == f"Use it: headstart generate {out} PROMPT --draft heads"
    for label in ("Preparing text", "Training"):
        assert "100 %" in [line for line in outcome.err.splitlines() if line.startswith(label)][-1]
    document = train(run_file, out, "--json").document
    assert document["model"] == str(out)
    assert document["num_steps"] == 3
    assert len(document["losses"]) == 3
    assert f"{document['bits_per_byte']:.3f} bits a byte" in held_out
    plain, drafted = (
        run_command(
            "generate", out, "def f", "--max-tokens", "24", "--json", "--draft", draft, "--threads", "1"
        ).document
        for draft in ("none", "heads")
    )
    assert drafted["token_hash"] == plain["token_hash"]
    assert drafted["drafter"] == "heads"
    turns = run_command(
        "chat", out, "--max-tokens", "24", "--json", "--threads", "1", stdin=b"def f\nx\n"
    ).out.splitlines()
    assert json.loads(turns[0])["token_hash"] == plain["token_hash"]
    assert len(turns) == 2
    settings = json.loads((out / "run" / "config.json").read_text())
    assert settings["config"]["heads.n"] == 3
    assert settings["versions"]["torch"]


def test_flags_go_over_the_file(run_file: Path, tmp_path: Path, trains: None) -> None:
    outcome = train(run_file, tmp_path / "model", "--steps", "1", "--seed", "3", "--set", "heads.n=1", "--json")
    assert outcome.document["num_steps"] == 1
    assert outcome.document["heads"] is None
    settings = json.loads((tmp_path / "model" / "run" / "config.json").read_text())["config"]
    assert (settings["train.seed"], settings["heads.n"]) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "heads.m=1"), "no key 'm'"),
        (("--set", "heads.knd=parallel"), "Did you mean 'kind'"),
        (("--set", "heads.n"), "give TABLE.KEY=VALUE"),
        (("--steps", "-1"), "train.steps = -1"),
        (("--stepps", "1"), "--steps"),
        (("--set", "data.path=there"), "one of the two"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_made(
    run_file: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    outcome = train(run_file, tmp_path / "model", *arguments)
    assert outcome.status == 2
    assert words in outcome.err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "config.json", "model-00001-of-00002.safetensors"])
def test_a_model_that_no_run_has_written_is_not_replaced(
    run_file: Path, tmp_path: Path, trains: None, name: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / name).write_text("someone's work")
    outcome = train(run_file, model)
    assert outcome.status == 2
    assert "holds a model that no run has written there" in outcome.err
    assert [path.name for path in model.iterdir()] == [name]
    assert (model / name).read_text() == "someone's work"


def test_the_folder_must_be_named(run_file: Path) -> None:
    outcome = run_command("train", run_file)
    assert outcome.status == 2
    assert "--out is missing" in outcome.err


def test_without_torch_it_says_what_to_install(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = train(run_file, tmp_path / "model")
    assert outcome.status == 1
    assert "torch is not installed" in outcome.err
    assert "pip install 'headstart[train]'" in outcome.err


def test_a_plan_needs_neither_folder_nor_torch(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    seven = ("model.hidden_size=4096", "model.num_layers=32", "model.num_heads=32", "model.intermediate_size=11008",
             "model.context=4096", "data.window=4096", "data.tokenizer=bpe:32000")  # fmt: skip
    command = ("train", run_file, "--plan", *(part for change in seven for part in ("--set", change)))
    outcome = run_command(*command)
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["parameters", "FLOPs", "a", "token", "logits", "at", "once", "kept", "for", "backward"]
    trunk, first, second, together = (line.split() for line in lines[1:5])
    assert (trunk[0], trunk[1:3]) == ("trunk", ["6.74", "G"])
    assert (first[:2], second[:2], together[0]) == (["depth", "1"], ["depth", "2"], "together")
    document = run_command(*command, "--json").document
    assert document["parameters"] == sum(part["parameters"] for part in document["parts"])
    assert document["naive_peak_bytes"] > document["peak_bytes"]


def test_ctrl_c_stops_and_the_same_command_goes_on(
    run_file: Path, tmp_path: Path, trains: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = PhaseProgress.show

    def show_and_press(bars: PhaseProgress, label: str, done: float, *figures: Any) -> None:
        show(bars, label, done, *figures)
        if label.startswith("Training") and done == 1:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(PhaseProgress, "show", show_and_press)
        outcome = train(run_file, tmp_path / "model")
    assert outcome.status == 130
    assert outcome.out == ""
    assert "the same command goes on from here" in outcome.err.splitlines()[-1]
    assert train(run_file, tmp_path / "model").status == 0


def test_a_failed_run_says_so_in_one_line(run_file: Path, tmp_path: Path, trains: None) -> None:
    assert train(run_file, tmp_path / "model").status == 0
    outcome = train(run_file, tmp_path / "model", "--seed", "1")
    assert outcome.status == 2
    assert "train.seed was 0 and is now 1" in outcome.err
