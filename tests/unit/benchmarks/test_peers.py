"""The comparison with other engines: turns, figures, failures. No peer is needed for these."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import peers
from peer_workers.pairing import BATCH_REQUESTS, COST_ROWS, NEW_TOKENS, Pair
from peer_workers.process import FOLDER, UnsupportedCommandError, WorkerFailureError, WorkerProcess
from peer_workers.report import format_report

TOKEN_IDS = range(1000)

FAKE_WORKER = f"""
import os, sys
sys.path.insert(0, {str(FOLDER)!r})
from protocol import Loaded, Unsupported, Worker, serve

class Fake(Worker):
    def load(self, *, model, threads, context, weights_folder):
        print("loading ...")  # engines talk
        os.write(1, b"in C, too\\n")
        return Loaded(name="Fake", version="1.0", weights="none")
    def tokenize(self, *, text):
        return {{"token_ids": list(range(1000))}}
    def generate(self, *, prompt_ids, max_tokens):
        return {{"token_ids": [7] * max_tokens, "prefill_s": 0.5, "generation_s": GENERATION_S}}
    def export(self, *, folder):
        raise ValueError("the disk is full")
    def batch(self, **_):
        print("Segmentation fault", file=sys.stderr)
        os._exit(3)

serve(Fake())
"""


class FakeSide:
    """Answers at given speeds, and notes when it works."""

    def __init__(self, name: str, tokens_per_s: list[float], log: list[str], token_ids: list[int]) -> None:
        self.name = name
        self.running = True
        self.prompts: list[list[int]] = []
        self.other: FakeSide | None = None
        self._speeds = iter(tokens_per_s)
        self._log = log
        self._token_ids = token_ids

    def pause(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        assert self.running
        assert self.other is not None
        assert not self.other.running
        self._log.append(self.name)
        if command == "cost":
            return {"ms": {str(rows): [float(rows)] * arguments["repeats"] for rows in arguments["rows"]}}
        if command == "batch":
            self.prompts += arguments["prompts"]
            num_tokens = len(arguments["prompts"]) * arguments["max_tokens"]
            return {"num_tokens": num_tokens, "seconds": num_tokens / next(self._speeds)}
        self.prompts.append(arguments["prompt_ids"])
        speed = next(self._speeds)
        return {
            "token_ids": self._token_ids[: arguments["max_tokens"]],
            "prefill_s": len(arguments["prompt_ids"]) / speed,
            "generation_s": (arguments["max_tokens"] - 1) / speed,
        }


def make_pair(ours: list[float], peer: list[float]) -> tuple[Pair, FakeSide, FakeSide, list[str]]:
    log: list[str] = []
    mine = FakeSide("ours", ours, log, [1] * NEW_TOKENS)
    theirs = FakeSide("peer", peer, log, [1] * 5 + [2] * (NEW_TOKENS - 5))
    mine.other, theirs.other = theirs, mine
    return Pair(mine, theirs, TOKEN_IDS, rounds=3), mine, theirs, log


@pytest.mark.parametrize("measure", [Pair.plain, Pair.prefill, Pair.batch])
def test_ratios_are_of_neighbours_and_the_first_turn_is_left_out(measure: Any) -> None:
    pair, _, _, log = make_pair(ours=[1.0, 100.0, 50.0, 300.0], peer=[9.0, 200.0, 50.0, 100.0])
    figures = measure(pair)
    assert figures["ours"] == pytest.approx(100.0)
    assert figures["peer"] == pytest.approx(100.0)
    assert [figures[name] for name in ("min", "ratio", "max")] == pytest.approx([0.5, 1.0, 3.0])
    assert log == ["ours", "peer"] * 4


@pytest.mark.parametrize("measure", [Pair.plain, Pair.prefill, Pair.batch])
def test_both_sides_get_the_same_prompts_and_no_prompt_comes_twice(measure: Any) -> None:
    pair, mine, theirs, _ = make_pair(ours=[1.0] * 4, peer=[1.0] * 4)
    measure(pair)
    assert mine.prompts == theirs.prompts
    assert len({prompt[0] for prompt in mine.prompts}) == len(mine.prompts) in (4, 4 * BATCH_REQUESTS)


def test_plain_says_how_far_the_texts_agree() -> None:
    pair, *_ = make_pair(ours=[1.0] * 4, peer=[1.0] * 4)
    assert pair.plain()["same_first_tokens"] == 5


def test_cost_is_relative_to_one_row() -> None:
    pair, *_ = make_pair([], [])
    figures = pair.cost()
    assert figures["ours"] == {str(rows): {"ms": rows, "relative": rows} for rows in COST_ROWS}


@pytest.fixture
def fake_worker(tmp_path: Path) -> Path:
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE_WORKER.replace("GENERATION_S", "0.5"))
    return script


def load(worker: WorkerProcess) -> dict[str, Any]:
    return worker.ask("load", model="m", threads=1, context=8, weights_folder=None)


def test_a_worker_may_print_without_spoiling_its_answers(fake_worker: Path) -> None:
    with WorkerProcess(sys.executable, fake_worker) as worker:
        assert load(worker) == {"name": "Fake", "version": "1.0", "weights": "none"}
        worker.pause()
        worker.resume()
        assert worker.ask("generate", prompt_ids=[1], max_tokens=3)["token_ids"] == [7, 7, 7]


def test_what_an_engine_lacks_is_told_from_its_failure(fake_worker: Path) -> None:
    with WorkerProcess(sys.executable, fake_worker) as worker:
        with pytest.raises(UnsupportedCommandError, match="single forward pass"):
            worker.ask("cost", rows=[1], context=8, repeats=1)
        with pytest.raises(WorkerFailureError, match="export: ValueError: the disk is full"):
            worker.ask("export", folder="x")


def test_a_dead_worker_is_a_failure_with_its_last_words(fake_worker: Path) -> None:
    with WorkerProcess(sys.executable, fake_worker) as worker:
        with pytest.raises(
            WorkerFailureError, match="no answer to batch: exit status 3; its last words: Segmentation fault"
        ):
            worker.ask("batch", prompts=[[1]], max_tokens=1)
        with pytest.raises(WorkerFailureError, match="no answer to load"):
            load(worker)


def test_an_interpreter_that_is_not_there_is_a_failure(fake_worker: Path) -> None:
    with pytest.raises(WorkerFailureError, match="/nowhere/python cannot be started"):
        WorkerProcess("/nowhere/python", fake_worker)


def compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ours_s: str, peer_s: str) -> None:
    """Run the whole comparison with fakes for both sides; only llama.cpp is named."""
    without_batch = FAKE_WORKER[: FAKE_WORKER.index("    def batch")] + "serve(Fake())"
    for name, seconds in (("ours.py", ours_s), ("llama_cpp_worker.py", peer_s)):
        (tmp_path / name).write_text(without_batch.replace("GENERATION_S", seconds))
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    monkeypatch.setattr(peers, "OURS", tmp_path / "ours.py")
    peers.compare(llama_cpp=Path(sys.executable), model=tmp_path / "model.gguf", rounds=1, json=True)


def test_a_loss_is_printed_like_a_win(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(monkeypatch, tmp_path, ours_s="2.0", peer_s="1.0")
    *lines, document = capsys.readouterr().out.splitlines()
    report = json.loads(document)
    (llama_cpp,) = report["peers"]
    assert llama_cpp["plain_tokens_per_s"]["ratio"] == pytest.approx(0.5)
    assert llama_cpp["plain_tokens_per_s"]["same_first_tokens"] == NEW_TOKENS
    assert not {"batch_tokens_per_s", "cost"} & set(llama_cpp)
    assert lines == format_report(report).splitlines()
    assert any(line.split()[-4:] == ["127.0", "63.5", "0.50", "0.50-0.50"] for line in lines)


def test_peers_that_are_not_there_are_named_with_their_set_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(monkeypatch, tmp_path, ours_s="1.0", peer_s="no number")
    out = capsys.readouterr().out
    report = json.loads(out.splitlines()[-1])
    assert report["peers"] == []
    reasons = {missing["peer"]: missing["reason"] for missing in report["not_measured"]}
    assert "llama_cpp_worker: no answer to load: exit status 1; its last words: SyntaxError" in reasons["llama.cpp"]
    assert reasons["OpenVINO GenAI"] == "no --openvino was given"
    assert "pip install openvino-genai" in out


def test_our_own_failure_is_not_put_on_a_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(WorkerFailureError, match="ours: no answer to load"):
        compare(monkeypatch, tmp_path, ours_s="no number", peer_s="1.0")


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--threads", "0"]])
def test_a_setting_out_of_range_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        peers.main(arguments)
    assert ending.value.code == 2
    assert f"{' '.join(arguments)}: it must be at least 1" in capsys.readouterr().err


def test_variables_stand_in_for_flags(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HEADSTART_PEER_ROUNDS", "0")
    with pytest.raises(SystemExit):
        peers.main([])
    assert "--rounds 0" in capsys.readouterr().err
