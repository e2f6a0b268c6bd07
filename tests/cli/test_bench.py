from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from headstart.cli.interrupt import Interrupt
from headstart.testing.command_line import Outcome, run_command
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.testing.toy_server import ToyServerConfig, serve_toy


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = [
        {"id": "a", "category": "code", "prompt": "the same words, the same words"},
        {"id": "b", "category": "writing", "turns": ["tell a tale", "and another"]},
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def bench(*arguments: str | Path, max_tokens: int = 6, repeats: int = 2) -> Outcome:
    fixed = ("--max-tokens", str(max_tokens), "--repeats", str(repeats), "--threads", "1")
    return run_command("bench", *arguments, *fixed)


def test_sides_are_compared_at_every_batch_and_context(tiny_model: str, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = bench(
        tiny_model, "--draft", "none,lookup", "--batch", "1,2", "--context", "120,200", "--prompts", prompts,
        "--out", out, "--json",
    )  # fmt: skip
    document = outcome.document
    assert outcome.status == 0
    assert [cell["key"] for cell in document["cells"]] == [
        "1 at once, 120 tokens", "1 at once, 200 tokens", "2 at once, 120 tokens", "2 at once, 200 tokens",
    ]  # fmt: skip
    for cell in document["cells"]:
        plain, lookup = cell["sides"]
        assert (plain["side"], lookup["side"]) == ("none", "lookup")
        assert lookup["num_compared"] == lookup["num_requests"] > 0
        assert lookup["different"] == []
        assert set(lookup["speedup_by_category"]) == {"code", "writing"}
        assert lookup["prediction"]["predicted"] > 0
        assert plain["latency"]["first_token_s"]["p95"] > 0
        assert cell["relative_cost"]["1"] == 1.0
    assert document["subject"]["prompts"]["categories"] == {"code": 1, "writing": 1}
    assert json.loads((out / "report.json").read_text()) == document
    assert {path.name for path in out.iterdir()} == {"report.json", "report.md", "report.html", "turns.jsonl"}


def test_prompts_that_are_read_beforehand_come_quickly(tiny_model: str, prompts: Path) -> None:
    told = ("--draft", f"none,lookup,model:{tiny_model}", "--context", "400", "--prompts", prompts, "--json")
    first_s = []
    for flags in ((), ("--cached-prompts",)):
        document = bench(tiny_model, *told, "--batch", "2", *flags, repeats=1).document
        assert document["subject"]["settings"]["cached_prompts"] is bool(flags)
        (cell,) = document["cells"]
        assert [side["different"] for side in cell["sides"]] == [[], [], []]
        assert all(side["prediction"] for side in cell["sides"][1:])
        first_s.append([side["latency"]["first_token_s"]["p50"] for side in cell["sides"]])
    assert all(cached < 0.5 * read for read, cached in zip(*first_s, strict=True)), first_s


def test_for_people(tiny_model: str, prompts: Path) -> None:
    outcome = bench(tiny_model, "--draft", "lookup", "--prompts", prompts, "--rate", "50", repeats=1)
    assert outcome.status == 0
    assert "With 50 a second:" in outcome.out
    assert "plain" in outcome.out
    assert "3 of 3 texts the same" in outcome.out


def test_an_interrupted_run_is_reported_and_gone_on_with(
    tiny_model: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (tiny_model, "--draft", "lookup", "--prompts", prompts, "--out", tmp_path / "out")
    looks = itertools.count()
    with monkeypatch.context() as patch:
        # as if Ctrl-C were pressed at some look
        patch.setattr(
            Interrupt, "asked", property(lambda self: next(looks) > 60, lambda self, value: None), raising=False
        )
        stopped = bench(*arguments)
    assert stopped.status == 130
    assert "the same command goes on" in stopped.err
    turns = (tmp_path / "out" / "turns.jsonl").read_text().splitlines()
    assert "stopped before its end" in (tmp_path / "out" / "report.md").read_text()

    outcome = bench(*arguments)
    assert outcome.status == 0
    assert "Going on with a run" in outcome.err
    after = (tmp_path / "out" / "turns.jsonl").read_text().splitlines()
    assert len(after) > len(turns) > 1
    assert after[: len(turns)] == turns

    other = bench(*arguments, max_tokens=7)
    assert other.status == 2
    assert "another settings" in other.err


def test_a_run_is_not_gone_on_with_another_drafter_of_the_same_name(
    tiny_model: str, prompts: Path, tmp_path: Path
) -> None:
    drafting = tmp_path / "drafting.gguf"
    arguments = (tiny_model, "--draft", f"model:{drafting}", "--prompts", prompts, "--out", tmp_path / "out")
    write_tiny_gguf(drafting, kind="F16", num_layers=1)
    assert bench(*arguments).status == 0
    write_tiny_gguf(drafting, kind="F16", num_layers=1, seed=1)
    other = bench(*arguments)
    assert other.status == 2
    assert "another drafters" in other.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--draft", "none"), "name a drafter"),
        (("--draft", "nonsense"), "it must be one of auto"),
        (("--batch", "one"), "numbers with commas"),
        (("--batch", "0"), "at least 1 request"),
        (("--batch", "1,1"), "named twice"),
        (("--limit", "0"), "at least 1 prompt"),
        (("--context", "8"), "tokens already"),
        (("--context", "510"), "shorter --context"),
        (("--url-plain", "http://h/v1"), "no effect without --url"),
        (("--url", "http://h/v1"), "either a model"),
    ],
)
def test_wrong_usage_is_told_in_a_line(tiny_model: str, prompts: Path, arguments: tuple[str, ...], told: str) -> None:
    outcome = bench(tiny_model, "--prompts", prompts, *arguments)
    assert outcome.status == 2
    assert told in outcome.err
    assert outcome.err.count("\n") == 1


def test_two_servers(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    path.write_text(
        '{"id": "a", "prompt": "the same words", "raw": true}\n{"id": "b", "prompt": "a tale", "raw": true}'
    )
    with (
        serve_toy() as plain,
        serve_toy() as drafting,
        serve_toy(ToyServerConfig(fault="token lost after a rejection")) as faulty,
    ):
        fixed = (
            "--url-plain",
            plain,
            "--prompts",
            path,
            "--batch",
            "1,2",
            "--max-tokens",
            "24",
            "--repeats",
            "1",
            "--json",
        )
        outcome = run_command("bench", "--url", drafting, *fixed)
        changed = run_command("bench", "--url", faulty, *fixed)
    cell = outcome.document["cells"][0]
    assert [side["side"] for side in cell["sides"]] == ["none", "drafting"]
    assert [(side["num_requests"], side["different"]) for side in cell["sides"]] == [(2, []), (2, [])]
    assert cell["sides"][1]["prediction"] is None
    assert outcome.document["subject"]["servers"]["drafting"] == drafting
    assert changed.status == 0  # near ties may do that, and check tells
    assert changed.document["cells"][0]["sides"][1]["different"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "Plain decoding is needed"),
        (("--url-plain", "http://h/v1", "--plain-fields", "{}"), "One of them"),
        (("--plain-fields", "[]"), "a JSON object"),
        (("--plain-fields", "{"), "no JSON"),
        (("--plain-fields", '{"a": NaN}'), "NaN is no number of JSON"),
        (("--plain-fields", "{}", "--draft", "lookup"), "server's own affair"),
        (("--plain-fields", "{}", "--cached-prompts"), "--cached-prompts has no effect with --url"),
    ],
)
def test_wrong_usage_with_servers(arguments: tuple[str, ...], told: str) -> None:
    outcome = run_command("bench", "--url", "http://localhost:1/v1", *arguments)
    assert outcome.status == 2
    assert told in outcome.err
