from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.checkpoint.heads_file import open_heads  # noqa: E402
from headstart.checkpoint.safetensors import read_safetensors  # noqa: E402
from headstart.engine.loading import load_parts  # noqa: E402
from headstart.errors import CheckpointError, ConfigError, HeadstartError, UnsupportedError  # noqa: E402
from headstart.records import SamplingParams  # noqa: E402
from headstart.train.corpus import TokenStore, open_corpus  # noqa: E402
from headstart.train.pretrain import run as run_module  # noqa: E402
from headstart.train.pretrain.acceptance import prompts_of  # noqa: E402
from headstart.train.pretrain.config import PretrainConfig  # noqa: E402
from headstart.train.pretrain.run import PretrainResult, pretrain  # noqa: E402
from headstart.train.pretrain.trainer import PretrainTrainer  # noqa: E402
from headstart.train.pretrain.written_model import ModelWriter  # noqa: E402
from headstart.train.run_directory import RunDirectory, read_state  # noqa: E402

MakeConfig = Callable[..., PretrainConfig]


def finished(config: PretrainConfig, out: Path) -> PretrainResult:
    result = pretrain(config, out)
    assert result is not None
    return result


def tensors_of(folder: Path) -> dict[str, bytes]:
    files = [folder / "model.safetensors", folder / "heads.safetensors", folder / "run" / "state.safetensors"]
    found = {}
    for file in files:
        if file.exists():
            found |= {f"{file.name}/{name}": t.data.tobytes() for name, t in read_safetensors(file).items()}
    _, progress = read_state(folder / "run")  # what the guard remembers is among it
    return found | {"progress": json.dumps(progress, sort_keys=True).encode()}


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """All lines, but for what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_s"} for line in lines]


def generated(folder: Path, draft: str) -> tuple[int, ...]:
    parts = load_parts(str(folder), draft=draft, threads=1)
    prompts = [parts.tokenizer.encode(text) for text in ("def f", "    return x", "")]
    with parts.make_engine(policy="always") as engine:
        done = engine.generate_many([p or [10] for p in prompts], SamplingParams(max_tokens=24))
        return tuple(token for completion in done for token in completion.token_ids)


@pytest.mark.parametrize(
    "heads",
    [
        {},
        {"form": "linear"},
        {"kind": "sequential"},
        {"kind": "sequential", "unrolled": True},
        {"own_unembedding": True},
    ],
    ids=["parallel", "linear", "sequential", "unrolled", "own"],
)
def test_what_comes_out_runs_at_once_and_stands_without_its_heads(
    tiny_run: MakeConfig, tmp_path: Path, heads: dict[str, Any]
) -> None:
    out = tmp_path / "model"
    result = finished(tiny_run(heads), out)
    assert result.heads == out / "heads.safetensors"
    assert result.measured is not None
    assert result.measured.greedy.tau >= 1
    plain = generated(out, "none")
    assert generated(out, "heads") == plain
    result.heads.unlink()
    assert generated(out, "none") == plain
    assert result.bits_per_byte < 8.5
    assert len(result.losses) == len(result.correct) == 3


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("heads", [{}, {"kind": "sequential"}], ids=["parallel", "sequential"])
def test_what_is_written_is_what_was_trained_or_its_average(
    tiny_run: MakeConfig, tmp_path: Path, heads: dict[str, Any], ema: float
) -> None:
    finished(tiny_run(heads, {"ema": ema, "learning_rate": 0.05, "schedule": "constant"}), tmp_path)
    state, _ = read_state(tmp_path / "run")
    prefix = "average." if ema else ""
    if ema:  # else either would pass for the other
        assert float((state["trunk.final_norm"] - state["average.trunk.final_norm"]).abs().max()) > 0.02
    written = open_heads(tmp_path / "heads.safetensors")
    names = [name.removeprefix("heads.") for name in state if name.startswith("heads.")]
    assert len(names) > 4
    for name in names:
        trained = state[f"{prefix}heads.{name}"].numpy()
        assert written.tensor(name).dequantize() == pytest.approx(trained, rel=0.005, abs=0.005), name
    norm = read_safetensors(tmp_path / "model.safetensors")["model.norm.weight"].dequantize()
    assert norm == pytest.approx(state[f"{prefix}trunk.final_norm"].numpy(), rel=0.005)


def test_a_run_is_judged_by_text_that_it_was_not_trained_on(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[str, list[int]] = {}

    def note(name: str) -> None:
        original = getattr(run_module, name)

        def wrapped(store: Any, *arguments: Any, **named: Any) -> Any:
            taken[name] = [store.num_documents, store.num_tokens]
            return original(store, *arguments, **named)

        monkeypatch.setattr(run_module, name, wrapped)

    for name in ("validation_windows", "prompts_of", "CorpusWindows"):
        note(name)
    config = tiny_run()
    finished(config, tmp_path)
    corpus = open_corpus(config.data.path)
    held_out = [corpus.validation.num_documents, corpus.validation.num_tokens]
    trained = [corpus.train.num_documents, corpus.train.num_tokens]
    assert held_out != trained
    assert taken == {"validation_windows": held_out, "prompts_of": held_out, "CorpusWindows": trained}


def test_acceptance_is_measured_greedily_and_at_temperature_1(tiny_run: MakeConfig, tmp_path: Path) -> None:
    finished(tiny_run(), tmp_path)
    (measured,) = (line for line in metrics_of(tmp_path) if line["kind"] == "measured")
    assert measured["tau"] != measured["drawn"]["tau"]


def test_prompts_are_taken_from_the_middle_of_documents_all_over_a_store() -> None:
    lengths = [10, 3, 8, 9, 30, 11, 12]
    documents = [np.arange(100 * number, 100 * number + length) for number, length in enumerate(lengths)]
    store = cast(TokenStore, SimpleNamespace(lengths=np.array(lengths), document=documents.__getitem__))
    assert prompts_of(store, 3, 4) == [[3, 4, 5, 6], [302, 303, 304, 305], [503, 504, 505, 506]]
    assert len(prompts_of(store, 99, 4)) == 5  # twice a prompt is not long enough
    assert prompts_of(store, 3, 15) == []


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral"])
def test_every_family_can_be_trained_and_written(tiny_run: MakeConfig, tmp_path: Path, family: str) -> None:
    sizes = {"family": family, "hidden_size": 32, "num_layers": 2, "num_heads": 2, "context": 256, "tied": True}
    finished(tiny_run({"n": 2}, {"steps": 1, "measure_every": 9}, sizes), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.metadata["model_type"] == family
    assert checkpoint.tokenizer().decode(checkpoint.tokenizer().encode("naïve 🙂")) == "naïve 🙂"
    assert generated(tmp_path, "heads") == generated(tmp_path, "none")


def test_next_token_training_has_no_heads(tiny_run: MakeConfig, tmp_path: Path) -> None:
    result = finished(tiny_run({"n": 1}), tmp_path / "model")
    assert (result.heads, result.measured, len(result.losses)) == (None, None, 1)
    assert not (tmp_path / "model" / "heads.safetensors").exists()
    assert {line["kind"] for line in metrics_of(tmp_path / "model")} == {"step", "validation"}


def test_the_trunk_begins_alike_with_any_heads(tiny_run: MakeConfig, tmp_path: Path) -> None:
    first = []
    for number, heads in enumerate(({"n": 1}, {"n": 3}, {"kind": "sequential"})):
        finished(tiny_run(heads, {"steps": 1}), tmp_path / str(number))
        first.append(metrics_of(tmp_path / str(number))[0]["losses"][0])
    assert first[0] == first[1] == first[2]


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def killing(patch: pytest.MonkeyPatch, calls: int, chance: random.Random) -> None:
    """Die at the calls-th of the places where a run can be found by a kill, before or after what is done there."""
    left = [calls]

    def deadly(owner: type, name: str) -> None:
        original = getattr(owner, name)
        before = chance.random() < 0.5

        def wrapped(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and before:
                raise Killed
            found = original(*arguments, **named)
            if left[0] == 0:
                raise Killed
            return found

        patch.setattr(owner, name, wrapped)

    for owner, name in (
        (PretrainTrainer, "take_step"), (RunDirectory, "save"), (RunDirectory, "log"), (RunDirectory, "remember"),
        (ModelWriter, "write"), (ModelWriter, "place"), (os, "replace"),
    ):  # fmt: skip
        deadly(owner, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("heads", [{"curriculum": "forward"}, {"kind": "sequential"}], ids=["parallel", "sequential"])
def test_a_run_killed_at_random_moments_ends_with_the_same_weights(
    tiny_run: MakeConfig, tmp_path: Path, heads: dict[str, Any]
) -> None:
    often = {"steps": 14, "save_every_s": 0.0, "validate_every": 2, "measure_every": 7}
    config = tiny_run(heads, {"ema": 0.9, **often})
    finished(config, tmp_path / "whole")
    chance = random.Random(5)
    kills = 0
    result = None
    while result is None:
        with pytest.MonkeyPatch.context() as patch:
            if kills < 10:
                killing(patch, chance.randint(1, 12), chance)
            # states are saved now after every step, now hardly ever
            sparing = config.train if chance.random() < 0.7 else replace(config.train, save_every_s=1e9)
            try:
                result = pretrain(replace(config, train=sparing), tmp_path / "killed")
            except Killed:
                kills += 1
    assert kills == 10
    assert tensors_of(tmp_path / "killed") == tensors_of(tmp_path / "whole")
    assert metrics_of(tmp_path / "killed") == metrics_of(tmp_path / "whole")


def test_a_process_killed_twenty_times_at_random_moments_ends_with_the_same_weights(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    config = tiny_run(train={"save_every_s": 0.0, "steps": 30, "validate_every": 5, "measure_every": 15, "ema": 0.9})
    began = time.monotonic()
    finished(config, tmp_path / "whole")
    whole_s = time.monotonic() - began
    chance = random.Random(3)
    kills = 0
    while True:
        # forked, so that it need not load PyTorch again
        process = multiprocessing.get_context("fork").Process(target=pretrain, args=(config, tmp_path / "killed"))
        process.start()
        process.join(timeout=60 if kills == 20 else chance.uniform(0.0, 0.15 * whole_s))
        if process.exitcode is not None:
            break
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills > 10  # twenty, unless a machine that was slow before has it done sooner
    assert tensors_of(tmp_path / "killed") == tensors_of(tmp_path / "whole")
    assert metrics_of(tmp_path / "killed") == metrics_of(tmp_path / "whole")


def test_stopping_saves_and_the_same_call_goes_on(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run()
    finished(config, tmp_path / "whole")
    asked = iter([False, False, True])
    assert pretrain(config, tmp_path / "stopped", should_stop=lambda: next(asked)) is None
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    finished(config, tmp_path / "stopped")
    assert tensors_of(tmp_path / "stopped") == tensors_of(tmp_path / "whole")
    before = (tmp_path / "stopped" / "model.safetensors").stat().st_mtime_ns
    finished(config, tmp_path / "stopped")  # a finished run is not trained again
    assert (tmp_path / "stopped" / "model.safetensors").stat().st_mtime_ns == before


def test_cutting_a_batch_otherwise_changes_no_more_than_rounding(tiny_run: MakeConfig, tmp_path: Path) -> None:
    figures = []
    for micro in (1, 4):
        result = finished(tiny_run(train={"micro_windows": micro, "measure_every": 100}), tmp_path / str(micro))
        figures.append((result.bits_per_byte, *result.losses))
    assert figures[0] == pytest.approx(figures[1], rel=1e-4)


@pytest.mark.parametrize("kind", ["parallel", "sequential"])
def test_products_in_bfloat16_train_as_well(tiny_run: MakeConfig, tmp_path: Path, kind: str) -> None:
    settings = {"steps": 8, "learning_rate": 4e-3, "measure_every": 100}
    exact, rounded = (
        finished(tiny_run({"kind": kind}, settings | {"precision": precision}), tmp_path / precision)
        for precision in ("float32", "bfloat16")
    )
    assert exact.losses != rounded.losses
    assert rounded.losses == pytest.approx(exact.losses, rel=0.01)


def test_other_settings_are_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run(train={"steps": 1})
    finished(config, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"train\.seed was 0 and is now 1"):
        pretrain(replace(config, train=replace(config.train, seed=1)), tmp_path / "run")


def test_a_damaged_state_is_named_and_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run()
    asked = iter([False, True])
    assert pretrain(config, tmp_path / "run", should_stop=lambda: next(asked)) is None
    state = tmp_path / "run" / "run" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        pretrain(config, tmp_path / "run")


def test_steps_that_spike_are_skipped_counted_and_end_a_run(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headstart.train.pretrain import trainer as module

    original = module.nn.utils.clip_grad_norm_
    bad = {2, 3}
    count = [0]

    def clip(*arguments: Any) -> Any:
        count[0] += 1
        norm = original(*arguments)
        return torch.tensor(float("nan")) if count[0] in bad else norm

    monkeypatch.setattr(module.nn.utils, "clip_grad_norm_", clip)
    result = finished(tiny_run(), tmp_path / "a")
    assert result.num_skipped == 2
    assert [line["skipped"] for line in metrics_of(tmp_path / "a") if line["kind"] == "step"] == [0, 1, 1, 0, 0, 0]
    bad, count[0] = set(range(1, 99)), 0
    with pytest.raises(HeadstartError, match="Step 3: the loss is"):
        pretrain(tiny_run(train={"max_skipped": 2}), tmp_path / "b")
    assert not (tmp_path / "b" / "model.safetensors").exists()


def test_a_time_limit_plans_as_many_steps_as_fit(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run(train={"steps": 4, "minutes": 5.0, "validate_every": 0, "measure_every": 0})
    assert finished(config, tmp_path / "long").num_steps == 4
    config = tiny_run(train={"steps": 400, "minutes": 0.02, "validate_every": 0, "measure_every": 0})
    result = finished(config, tmp_path / "short")
    assert 1 <= result.num_steps < 400


def test_training_goes_on_from_a_checkpoint(tiny_run: MakeConfig, tmp_path: Path) -> None:
    """What one run wrote is where another begins: its trunk, its tokenizer, and new heads."""
    finished(tiny_run({"n": 1}, {"steps": 30, "learning_rate": 5e-3}), tmp_path / "first")
    start = {"start": str(tmp_path / "first")}
    second = finished(tiny_run({"n": 3}, {"steps": 2, "learning_rate": 1e-5}, start), tmp_path / "second")
    judged = [line for line in metrics_of(tmp_path / "first") if line["kind"] == "validation"][-1]
    assert second.bits_per_byte == pytest.approx(judged["bits_per_byte"], abs=0.05)
    assert generated(tmp_path / "second", "heads") == generated(tmp_path / "second", "none")
    config = open_checkpoint(tmp_path / "second").metadata
    assert config["hidden_size"] == 32


def test_a_corpus_of_another_vocabulary_is_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    from headstart.testing.tiny_models import write_tiny_gguf

    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(ConfigError, match="tokens of another vocabulary"):
        pretrain(tiny_run(model={"start": str(model)}), tmp_path / "run")


def test_a_run_is_drawn(tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.delitem(sys.modules, "matplotlib.figure")
    finished(tiny_run(train={"steps": 2}), tmp_path)
    assert "trunk" in (tmp_path / "run" / "plot.svg").read_text()


def test_missing_trackers_and_devices_are_named(tiny_run: MakeConfig, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "trackio", None)
        with pytest.raises(UnsupportedError, match="pip install trackio"):
            pretrain(tiny_run(train={"track": ("trackio",)}), tmp_path / "a")
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="finds no such device"):
            pretrain(tiny_run(train={"device": "cuda"}), tmp_path / "b")
