"""This engine in all ways, and engines that are wrong on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.decoding.lookup import LookupDrafter
from headstart.engine import Engine, passes
from headstart.errors import ConfigError
from headstart.measure.check import Certificate, EngineCheckConfig, check_engine
from headstart.measure.check.engine_check import MakeEngine
from headstart.testing.byte_tokenizer import ByteTokenizer
from headstart.testing.drafters import RandomTreeDrafter
from headstart.testing.toy_engine import ALPHABET, VOCAB_SIZE, make_toy_drafter, make_toy_engine
from headstart.testing.wrong_engines import first_guess_is_always_kept, noise_is_that_of_the_round

PROMPTS = [ByteTokenizer(ALPHABET).encode(text) for text in ("once upon a time", "abcabcabcabcabcabc")]
DRAFTERS = {
    "none": lambda: None,
    "lookup": LookupDrafter,
    "model:toy": make_toy_drafter,
    "random": lambda: RandomTreeDrafter(VOCAB_SIZE, seed=3),
}
CONFIG = EngineCheckConfig(drafts=tuple(DRAFTERS), max_tokens=10, seed=5)


def open_toy(draft: str, threads: int | None) -> MakeEngine:
    def make_engine(**settings: Any) -> Engine:
        return make_toy_engine(DRAFTERS[draft](), **settings)

    return make_engine


def test_all_ways_write_the_plain_tokens():
    shown: list[float] = []
    findings = check_engine(open_toy, PROMPTS, CONFIG, shown.append)
    assert [finding.figures["draft"] for finding in findings] == [*DRAFTERS]
    assert Certificate(subject="toy", findings=findings, context={}, made_at="").exact
    # two prompts and four that begin alike, three laws, two ways for each batch and one as in use
    assert {finding.figures["num_compared"] for finding in findings} == {6 * 3 * 5}
    assert all(finding.figures["drafted"] > 0 for finding in findings if finding.figures["draft"] != "none")
    assert shown[-1] == 1.0


def test_each_number_of_threads_is_compared_with_the_first():
    asked: list[tuple[str, int | None]] = []

    def open_and_note(draft: str, threads: int | None) -> MakeEngine:
        asked.append((draft, threads))
        return open_toy(draft, threads)

    config = EngineCheckConfig(drafts=("none", "lookup"), threads=(1, 3), batches=(1,), max_tokens=2)
    findings = check_engine(open_and_note, PROMPTS[:1], config)
    assert asked == [("none", 1), ("none", 1), ("lookup", 1), ("none", 3), ("lookup", 3)]
    assert [finding.test for finding in findings] == [
        "none, 1 threads", "lookup, 1 threads", "none, 3 threads", "lookup, 3 threads"
    ]  # fmt: skip


@pytest.mark.parametrize("mutant", [first_guess_is_always_kept, noise_is_that_of_the_round])
def test_a_wrong_engine_is_caught_where_it_drafts(monkeypatch, mutant):
    mutant(monkeypatch)
    findings = check_engine(
        open_toy, PROMPTS, EngineCheckConfig(drafts=("none", "random"), batches=(2,), max_tokens=12)
    )
    plain, drafted = findings
    assert plain.outcome == "passed"
    assert drafted.outcome == "failed"
    first = drafted.figures["differences"][0]
    assert first["token"] != first["plain_token"]
    assert first["margin"] >= 0
    assert f"token {first['position']}" in drafted.faults[0].evidence


def test_batches_that_leak_into_each_other_are_caught(monkeypatch):
    original = passes.build_pass

    def mutant(rounds):
        passed = original(rounds)
        if len(rounds) > 1:
            passed.rows.page_tables[1][0] = passed.rows.page_tables[0][0]
        return passed

    monkeypatch.setattr("headstart.engine.engine.build_pass", mutant)
    (finding,) = check_engine(open_toy, PROMPTS, EngineCheckConfig(drafts=("none",), max_tokens=8))
    assert finding.outcome == "failed"
    assert {difference["batch"] for difference in finding.figures["differences"]} == {4}


@pytest.mark.parametrize("wrong", [{"drafts": ()}, {"batches": (0,)}, {"max_tokens": 0}, {"threads": ()}])
def test_settings_that_check_nothing_are_refused(wrong):
    with pytest.raises(ConfigError):
        EngineCheckConfig(**wrong)
    with pytest.raises(ConfigError, match="no prompts"):
        check_engine(open_toy, (), CONFIG)
