from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from headstart import Engine, SamplingParams
from headstart.cli.terminal import AnswerWriter
from headstart.engine import token_hash
from headstart.records import Event
from headstart.testing.command_line import Outcome, run_command
from headstart.testing.tiny_models import write_tiny_gguf

NUM_TOKENS = 8


def _chat(model: str, *lines: str, flags: tuple[str, ...] = ()) -> Outcome:
    text = "".join(f"{line}\n" for line in lines)
    return run_command("chat", model, "--max-tokens", str(NUM_TOKENS), *flags, stdin=text.encode())


def _turns(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def _answers(model: str, messages: list[str], system: str | None = None) -> list[str]:
    """The hashes of a conversation's answers, each written by an engine that saw nothing before."""
    history = [] if system is None else [{"role": "system", "content": system}]
    hashes = []
    for message in messages:
        history.append({"role": "user", "content": message})
        with Engine.load(model, draft="none", max_batch=1) as engine:
            completion = engine.generate(engine.encode_chat(history), SamplingParams(max_tokens=NUM_TOKENS))
        hashes.append(token_hash(completion.token_ids))
        history.append({"role": "assistant", "content": completion.text})
    return hashes


def test_each_turn_answers_the_whole_conversation(tiny_model: str) -> None:
    outcome = _chat(tiny_model, "abc abc", "", "  def  ", flags=("--json",))
    assert (outcome.status, outcome.err) == (0, "")
    assert [turn["token_hash"] for turn in _turns(outcome)] == _answers(tiny_model, ["abc abc", "def"])


def test_a_model_without_a_template_goes_on_with_the_lines_themselves(tmp_path: Path) -> None:
    model = str(write_tiny_gguf(tmp_path / "base.gguf", metadata={"tokenizer.chat_template": 0}))
    outcome = _chat(model, "abc", "def", flags=("--json",))
    assert outcome.status == 0
    assert outcome.err.startswith("This model has no chat template: it takes your lines for the beginning of a text")
    first, second = _turns(outcome)
    with Engine.load(model, draft="none", max_batch=1) as engine:
        for turn, text in ((first, "abc"), (second, f"abc\n{first['text']}\ndef")):
            completion = engine.generate(text, SamplingParams(max_tokens=NUM_TOKENS))
            assert turn["token_hash"] == token_hash(completion.token_ids)


def test_reset_begins_anew_and_keeps_the_system_message(tiny_model: str) -> None:
    outcome = _chat(tiny_model, "abc", "/reset", "def", flags=("--json", "--system", "Be brief."))
    expected = [_answers(tiny_model, [message], "Be brief.")[0] for message in ("abc", "def")]
    assert [turn["token_hash"] for turn in _turns(outcome)] == expected


def test_quit_leaves(tiny_model: str) -> None:
    assert len(_turns(_chat(tiny_model, "abc", "/quit", "def", flags=("--json",)))) == 1


def test_without_json_the_answers_are_text(tiny_model: str) -> None:
    texts = [turn["text"] for turn in _turns(_chat(tiny_model, "abc", "def", flags=("--json",)))]
    outcome = _chat(tiny_model, "abc", "def")
    assert outcome.out == "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)
    assert outcome.err == ""


def test_the_cache_of_earlier_turns_is_used_again(tiny_model: str) -> None:
    outcome = _chat(tiny_model, "abcdefghijklmnopqrstuvwxyz" * 2, "def", "/stats", flags=("--json",))
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"{2 * NUM_TOKENS} tokens in ")
    shared = int(line.split("; ")[1].split()[0])
    # all of the first turn's prompt but its last, partly filled page
    assert shared >= _turns(outcome)[0]["prompt_tokens"] // 16 * 16


def test_an_unknown_command_names_the_nearest(tiny_model: str) -> None:
    outcome = _chat(tiny_model, "/rest", flags=("--json",))
    assert outcome.status == 0
    assert "/reset?" in outcome.err
    assert outcome.out == ""
    assert "/quit stands alone" in _chat(tiny_model, "/quit now", flags=("--json",)).err


def test_ctrl_c_stops_the_answer_not_the_conversation(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = AnswerWriter.write
    events: list[Event] = []

    def write_and_press(writer: AnswerWriter, event: Event) -> None:
        write(writer, event)
        events.append(event)
        if len(events) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(AnswerWriter, "write", write_and_press)
    outcome = _chat(tiny_model, "abc", "def", "/stats", flags=("--draft", "none"))
    assert outcome.status == 0
    # three tokens of the first answer and all of the second
    assert f"{3 + NUM_TOKENS} tokens in " in outcome.err
    assert "cancelled" in [event.finish_reason for event in events]


def test_the_partial_answer_stays_in_the_conversation(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[dict[str, str]]] = []
    encode_chat = Engine.encode_chat

    def encode_and_note(engine: Engine, messages: list[dict[str, str]]) -> list[int]:
        asked.append(list(messages))
        return encode_chat(engine, messages)

    def press(writer: AnswerWriter, event: Event) -> None:
        written.append(event.text)
        if len(written) == 5:
            signal.raise_signal(signal.SIGINT)

    written: list[str] = []
    monkeypatch.setattr(Engine, "encode_chat", encode_and_note)
    monkeypatch.setattr(AnswerWriter, "write", press)
    _chat(tiny_model, "abc", flags=("--draft", "none"))
    first = "".join(written)
    written.clear()
    _chat(tiny_model, "abc", "def", flags=("--draft", "none"))
    assert first
    assert asked[-1] == [
        {"role": "user", "content": "abc"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "def"},
    ]


def test_a_turn_that_does_not_fit_fails_a_script(tiny_model: str) -> None:
    outcome = _chat(tiny_model, "abc", "d" * 600, "ghi", flags=("--json",))
    assert outcome.status == 1
    assert len(_turns(outcome)) == 1
    assert outcome.err.startswith("error: The prompt has ")


def test_bad_bytes_are_named_with_their_line(tiny_model: str) -> None:
    outcome = run_command("chat", tiny_model, "--json", "--max-tokens", "2", stdin=b"abc\nd\xfe\n")
    assert outcome.status == 2
    assert "Line 2" in outcome.err
    assert "0xfe" in outcome.err
