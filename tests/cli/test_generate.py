from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart import Engine, SamplingParams
from headstart.cli.terminal import AnswerWriter
from headstart.engine import token_hash
from headstart.records import Event
from headstart.testing.command_line import run_command
from headstart.testing.tiny_heads import write_tiny_heads

PROMPT = "abcabcabcabcabc"


@pytest.fixture
def engine(tiny_model: str) -> Iterator[Engine]:
    with Engine.load(tiny_model, draft="none", max_batch=1) as engine:
        yield engine


def test_the_document_is_the_engines_completion(tiny_model: str, engine: Engine) -> None:
    outcome = run_command("generate", tiny_model, PROMPT, "--max-tokens", "24", "--draft", "none", "--json")
    expected = engine.generate(PROMPT, SamplingParams(max_tokens=24))
    document = outcome.document
    assert (outcome.status, outcome.err) == (0, "")
    for name in ("text", "finish_reason", "prompt_tokens", "rounds", "drafted", "accepted", "drafter"):
        assert document[name] == getattr(expected, name), name
    assert tuple(document["token_ids"]) == expected.token_ids
    assert document["token_hash"] == token_hash(expected.token_ids)
    assert document["mean_acceptance_length"] == 1.0
    for name in ("tokens_per_s", "prefill_s", "load_s"):
        assert document[name] > 0, name


def test_the_settings_stand_beside_the_result(tiny_model: str) -> None:
    document = run_command(
        "generate", tiny_model, PROMPT, "--max-tokens", "4", "--threads", "1", "--weights", "f32", "--draft", "lookup",
        "--temperature", "0.5", "--top-k", "7", "--top-p", "0.9", "--min-p", "0.01", "--repetition-penalty", "1.1",
        "--presence-penalty", "0.2", "--frequency-penalty", "0.3", "--stop", "x y", "--stop", "z", "--ignore-eos",
        "--seed", "5", "--context", "64", "--json",
    ).document  # fmt: skip
    assert document["seed"] == 5
    assert document["threads"] == 1
    assert document["settings"] == {"draft": "lookup", "weights": "f32", "context": 64}
    assert document["model"]["path"] == tiny_model
    assert document["instruction_set"]
    assert document["versions"]["headstart"]
    asked = {
        "max_tokens": 4, "temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": 0.3, "stop": ["x y", "z"], "ignore_eos": True,
    }  # fmt: skip
    assert asked.items() <= document["sampling"].items()


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_every_drafter_writes_the_same_tokens(tiny_model: str, temperature: str) -> None:
    documents = [
        run_command(
            "generate", tiny_model, PROMPT, "--max-tokens", "48", "--temperature", temperature, "--seed", "3",
            "--draft", draft, "--json",
        ).document
        for draft in ("none", "lookup", "auto", f"model:{tiny_model}")
    ]  # fmt: skip
    assert len({document["token_hash"] for document in documents}) == 1
    assert [document["drafter"] for document in documents] == ["none", "lookup", "lookup", "model"]


def test_text_goes_to_stdout_and_an_account_to_stderr(tiny_model: str) -> None:
    arguments = ("generate", tiny_model, PROMPT, "--max-tokens", "24")
    text = run_command(*arguments, "--json").document["text"]
    outcome = run_command(*arguments)
    assert outcome.out == (text if text.endswith("\n") else text + "\n")
    (line,) = outcome.err.splitlines()
    assert line.startswith("24 tokens, ")
    assert line.endswith("ended by length")


def test_text_is_shown_as_it_becomes_final(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []
    monkeypatch.setattr(AnswerWriter, "write", lambda self, event: pieces.append(event.text))
    run_command("generate", tiny_model, PROMPT, "--max-tokens", "24", "--draft", "none")
    assert len(pieces) == 24


def test_a_dash_reads_the_prompt_from_stdin(tiny_model: str) -> None:
    by_argument = run_command("generate", tiny_model, "größe\n", "--max-tokens", "8", "--json").document
    by_stdin = run_command(
        "generate", tiny_model, "-", "--max-tokens", "8", "--json", stdin="größe\n".encode()
    ).document
    assert by_stdin["token_hash"] == by_argument["token_hash"]
    assert by_stdin["prompt_tokens"] == by_argument["prompt_tokens"]


@pytest.mark.parametrize("prompt", ["- milk", "-5 + 3 =", "--help me", "---"])
def test_a_prompt_may_begin_with_a_dash(tiny_model: str, engine: Engine, prompt: str) -> None:
    document = run_command("generate", tiny_model, prompt, "--max-tokens", "2", "--json").document
    assert document["prompt_tokens"] == len(engine.tokenizer.encode(prompt))


def test_bad_bytes_on_stdin_are_named(tiny_model: str) -> None:
    outcome = run_command("generate", tiny_model, "-", stdin=b"ab\xffcd")
    assert outcome.status == 2
    assert "0xff at offset 2" in outcome.err


def test_chat_uses_the_models_template(tiny_model: str, engine: Engine) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "abc"}]
    arguments = ("generate", tiny_model, "abc", "--chat", "--max-tokens", "8", "--json")
    with_system = run_command(*arguments, "--system", "Be brief.").document
    assert with_system["prompt_tokens"] == len(engine.encode_chat(messages))
    assert run_command(*arguments).document["prompt_tokens"] == len(engine.encode_chat(messages[1:]))
    expected = engine.generate(engine.encode_chat(messages), SamplingParams(max_tokens=8))
    assert with_system["token_hash"] == token_hash(expected.token_ids)


def _press_ctrl_c_after(monkeypatch: pytest.MonkeyPatch, num_events: int) -> None:
    write = AnswerWriter.write
    seen: list[Any] = []

    def write_and_press(writer: AnswerWriter, event: Event) -> None:
        write(writer, event)
        seen.append(event)
        if len(seen) == num_events:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(AnswerWriter, "write", write_and_press)


def test_ctrl_c_ends_the_text_and_keeps_what_was_written(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("generate", tiny_model, PROMPT, "--draft", "none")
    whole = run_command(*arguments, "--max-tokens", "8", "--json").document["text"]
    _press_ctrl_c_after(monkeypatch, 8)
    outcome = run_command(*arguments, "--max-tokens", "200")
    assert outcome.status == 130
    # characters that were incomplete are flushed when a text ends, so the last one is left out
    assert outcome.out.startswith(whole.rstrip("�\n"))
    assert "8 tokens" in outcome.err
    assert "cancelled" in outcome.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_ends_at_once(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def press_twice(writer: AnswerWriter, event: Event) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(AnswerWriter, "write", press_twice)
    outcome = run_command("generate", tiny_model, PROMPT, "--max-tokens", "200")
    assert outcome.status == 130
    assert "Traceback" not in outcome.err


def test_heads_are_named_with_what_they_guessed(tiny_model: str, tmp_path: Path) -> None:
    heads = write_tiny_heads(tmp_path / "tiny.heads.safetensors", tiny_model)
    arguments = ("generate", tiny_model, PROMPT, "--max-tokens", "24", "--json")
    plain = run_command(*arguments, "--draft", "none").document
    assert plain["heads"] is None
    assert plain["drafted_by_drafter"] == {}
    document = run_command(*arguments, "--draft", f"heads:{heads}").document
    assert document["token_hash"] == plain["token_hash"]
    assert document["drafter"] == "heads"
    digest = document["heads"].pop("digest")
    assert digest
    assert document["heads"] == {"path": str(heads), "kind": "eagle3", "notes": []}
    assert sum(document["drafted_by_drafter"].values()) == document["drafted"]


def test_a_model_without_heads_says_where_they_were_looked_for(tiny_model: str) -> None:
    outcome = run_command("generate", tiny_model, PROMPT, "--draft", "heads")
    assert outcome.status != 0
    assert "tiny.heads.safetensors" in outcome.err
    assert "heads:FILE" in outcome.err
    assert "Traceback" not in outcome.err
