"""What a person sees: no controls, drafted tokens in colour, characters whole."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.cli.progress import progress_bar
from headstart.cli.terminal import AnswerWriter, printable
from headstart.records import Event
from headstart.testing.byte_tokenizer import ByteTokenizer

GREEN, DEFAULT = "\x1b[32m", "\x1b[39m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def _events(*parts: tuple[str, int]) -> list[Event]:
    """One event a part: its text, one token a byte, the first of which were drafted."""
    return [Event(0, tuple(text.encode()), drafted, text) for text, drafted in parts]


def _written(stream: io.StringIO, events: list[Event]) -> str:
    writer = AnswerWriter(stream, ByteTokenizer().stream())
    for event in events:
        writer.write(event)
    writer.end()
    return stream.getvalue()


@given(st.text(alphabet=st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"])))
def test_no_control_but_newline_and_tab_is_printable(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert len(shown) == len(text)
    kept = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]")
    assert all(own == sign for own, sign in zip(text, shown, strict=True) if kept.match(own))


def test_a_terminal_gets_signs_for_escapes_and_others_get_the_text_itself() -> None:
    hostile = "a\x1b]0;owned\x07b\x9b2Jc\rd\n"
    assert _written(io.StringIO(), _events((hostile, 0))) == hostile
    assert _written(Terminal(), _events((hostile, 0))) == "a␛]0;owned␇b�2Jc␍d\n"
    assert "\x1b]" not in _written(Terminal(), _events((hostile, len(hostile))))


def test_drafted_tokens_are_in_colour() -> None:
    assert _written(Terminal(), _events(("ab", 1), ("cd", 1), ("e", 0))) == (f"{GREEN}a{DEFAULT}b{GREEN}c{DEFAULT}de\n")


def test_colour_does_not_outlast_the_answer() -> None:
    assert _written(Terminal(), _events(("ab", 2))) == f"{GREEN}ab{DEFAULT}\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_declined(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert _written(Terminal(), _events(("ab\x1b", 1))) == "ab␛\n"


def test_a_pipe_gets_no_colour() -> None:
    assert _written(io.StringIO(), _events(("ab", 1))) == "ab\n"


def test_text_that_was_held_back_keeps_its_own_colour() -> None:
    # as when "ab" could be the beginning of a stop string: the tokens are final before their text is
    events = [Event(0, (97,), 1, ""), Event(0, (98,), 0, ""), Event(0, (99,), 0, "abc")]
    assert _written(Terminal(), events) == f"{GREEN}a{DEFAULT}bc\n"


def test_a_character_of_several_tokens_is_whole() -> None:
    first, *rest = "é".encode()
    events = [Event(0, (first,), 1, ""), Event(0, (*rest, 97), 1, "éa")]
    assert _written(Terminal(), events) == f"{GREEN}é{DEFAULT}a\n"


@pytest.mark.parametrize(
    "cluster",
    ["e\u0301", "👩\u200d🚀", "👍\U0001f3fd", "🇳🇴", "न\u093f"],
    ids=["accent", "joined", "skin", "flag", "vowel sign"],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_no_escape_inside_what_is_drawn_as_one(cluster: str, at_once: bool) -> None:
    head, tail = cluster[0], cluster[1:]
    if at_once:
        events = [Event(0, tuple(cluster.encode()), len(head.encode()), cluster)]
    else:
        events = _events((head, len(head.encode())), (tail, 0))
    assert _written(Terminal(), events) == f"{GREEN}{cluster}{DEFAULT}\n"


@given(st.lists(st.tuples(st.text(max_size=6), st.integers(0, 30))))
def test_without_its_colours_the_text_is_the_printable_text(parts: list[tuple[str, int]]) -> None:
    shown = _written(Terminal(), _events(*parts))
    text = printable("".join(text for text, _ in parts))
    assert shown.replace(GREEN, "").replace(DEFAULT, "") == (text if text.endswith("\n") or not text else text + "\n")
    assert shown.count(GREEN) == shown.count(DEFAULT)


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Loading") as show:
        show(0.5)
    assert capsys.readouterr() == ("", "")


def test_progress_is_gone_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    with progress_bar("Loading") as show:
        show(0.5)
        assert "50 %" in stderr.getvalue()
    assert stderr.getvalue().endswith("\x1b[2K")


def test_a_label_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    with progress_bar("[red]{x}[/no].gguf") as show:
        show(0.5)
    assert "[red]{x}[/no].gguf" in stderr.getvalue()


def test_progress_is_silent_on_a_terminal_that_cannot_redraw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stderr := Terminal())
    monkeypatch.setenv("TERM", "dumb")
    with progress_bar("Loading") as show:
        show(0.5)
    assert stderr.getvalue() == ""
