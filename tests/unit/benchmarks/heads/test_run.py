"""The benchmark of heads as a whole, on a tiny model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import heads
from head_figures import measurement
from head_figures.workload import make_prompt, read_questions
from headstart import Engine, SamplingParams
from peer_workers.process import FOLDER

NUM_TURNS, MAX_TOKENS = 10, 24

# a peer that is asked for as many tokens as were written plainly, and takes a second for each
FAKE_PEER = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from protocol import Loaded, Worker, serve

class Fake(Worker):
    def load(self, *, model, threads, context, weights_folder):
        return Loaded(name="Fake", version="fake 1.0", weights="none")
    def generate(self, *, prompt_ids, max_tokens):
        return {{"token_ids": [7] * max_tokens, "prefill_s": 0.5, "generation_s": max_tokens - 1.0}}

serve(Fake())
"""


@pytest.fixture
def arguments(files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(measurement, "ROUNDS", 1)
    monkeypatch.setattr(measurement, "ROUNDS_TOGETHER", 1)
    monkeypatch.setattr(measurement, "BATCH", 4)
    model, heads_file, data = files
    words = ["--model", model, "--heads", heads_file, "--data", data, "--max-tokens", MAX_TOKENS, "--threads", 1]
    return [*map(str, words), "--json"]


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    return read


def test_one_run_has_every_figure(
    arguments: list[str], files: tuple[Path, Path, Path], document: Callable[[], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    script = tmp_path / "llama_cpp_worker.py"
    script.write_text(FAKE_PEER)
    monkeypatch.setattr(heads, "PEER_SCRIPT", script)
    assert heads.run([*arguments, "--llama-cpp", sys.executable]) == 0
    found = document()
    empty = [name for name, value in found.items() if value is None or value == []]
    assert empty == ["different", "ended_early"]
    assert found["identical"] is True
    assert found["drafter_faults"] == 0
    # greedy and sampled texts, speed, creative texts, and four at once
    assert found["num_compared"] == NUM_TURNS + NUM_TURNS // 2 + 9 + (3 + 1) + 4
    assert found["llama_cpp_tokens_per_s"] == pytest.approx(1.0)
    assert found["speedup_over_llama_cpp"] == pytest.approx(found["auto_tokens_per_s"])
    assert found["speedup_over_plain"] == pytest.approx(found["auto_tokens_per_s"] / found["plain_tokens_per_s"])
    assert set(found["spreads"]["draft_cost"]) == {"median", "lowest", "highest"}
    assert sum(found["share_of_rounds_by_length"].values()) == pytest.approx(1.0)
    assert found["versions"]["llama_cpp"] == "fake 1.0"
    assert str(files[1].name) == found["settings"]["heads"]["name"]

    # the same from the engine itself, a text at a time, second turns with what it answered
    engine = Engine.load(files[0], draft=f"heads:{files[1]}", policy="always", max_nodes=15, max_batch=1, threads=1)
    completions = []
    for question in read_questions(files[2]):
        answers: list[str] = []
        for _ in question.turns:
            prompt = make_prompt(engine.tokenizer, question, answers)
            completions.append(engine.generate(prompt.token_ids, SamplingParams(max_tokens=MAX_TOKENS)))
            answers.append(completions[-1].text)
    rounds = sum(completion.rounds for completion in completions)
    assert found["tau"] == sum(len(completion.token_ids) for completion in completions) / rounds
    assert found["conditional_acceptance"] == list(engine.statistics.acceptance.conditional_acceptance)
    assert max(completion.drafted / completion.rounds for completion in completions) > 10


def test_acceptance_alone_is_the_same_and_times_nothing(
    arguments: list[str], document: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heads.run(arguments) == 0
    whole = document()
    assert heads.run([*arguments, "--only-acceptance"]) == 0
    found = document()
    for name in ("tau", "tau_by_category", "conditional_acceptance", "share_of_rounds_by_length"):
        assert found[name] == whole[name], name
    assert found["identical"] is True
    assert found["num_compared"] == NUM_TURNS + NUM_TURNS // 2
    assert found["speedup_over_plain"] is found["draft_cost"] is None


def test_an_interrupted_run_prints_what_it_has(
    arguments: list[str], document: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measurement, "measure_draft_cost", interrupted)
    assert heads.run(arguments) == 130
    found = document()
    assert found["ended_early"] == "interrupted"
    assert found["speedup_over_plain"] > 0
    assert found["identical"] is True
    assert found["tau"] is found["draft_cost"] is found["speedup_over_llama_cpp"] is None


def test_a_different_text_fails_the_run(
    arguments: list[str], document: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("head_figures.acceptance.token_hash", lambda tokens: object())
    assert heads.run(arguments) == 1
    found = document()
    assert found["identical"] is False
    assert {"s1", "s1, turn 2", "s1, auto", "s1, sampled"} <= set(found["different"])


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (["--limit", "0"], "--limit 0: it must be at least 1"),
        (["--max-tokens", "0"], "--max-tokens 0: it must be at least 1"),
        (["--temperature", "0"], "--temperature 0.0: it must be above 0"),
        (["--llama-cpp", "python", "--only-acceptance"], "--llama-cpp has no effect with --only-acceptance"),
        (["--data", "/nowhere"], "/nowhere/spec_bench.jsonl: the questions cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], extra: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, value, *flags = extra
    given = dict(zip(arguments[::2], arguments[1::2], strict=False)) | {name: value}
    assert heads.run([*(word for pair in given.items() for word in pair), *flags]) == 2
    assert text in capsys.readouterr().err


def test_a_variable_stands_in_for_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(heads.DATA_VARIABLE, "/elsewhere")
    assert heads.run(["--model", "/nowhere/model.gguf"]) == 2
    assert "/elsewhere/spec_bench.jsonl" in capsys.readouterr().err


def test_a_peer_that_cannot_be_loaded_ends_the_run_before_it_begins(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heads.run([*arguments, "--llama-cpp", "/nowhere/python"]) == 1
    output = capsys.readouterr()
    assert "/nowhere/python cannot be started" in output.err
    assert output.out == ""
