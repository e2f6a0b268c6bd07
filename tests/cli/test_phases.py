"""Progress of phases: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from headstart.cli.phases import PhaseProgress


class Terminal(io.StringIO):
    """Text that is written to a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, *, only_lines: bool = False) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stderr)
    with PhaseProgress(only_lines=only_lines) as progress:
        for done in range(5):
            progress.show("[training] {x}", done, 4, f"loss {done}")
    return stderr.getvalue()


def test_a_phase_has_a_line_when_it_begins_and_ends_and_none_between_so_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["[training] {x}: 0 %, loss 0", "[training] {x}: 100 %, loss 4"]
    assert shown(monkeypatch, io.StringIO()).splitlines() == lines
    assert shown(monkeypatch, Terminal(), only_lines=True).splitlines() == lines


def test_a_terminal_has_bars_with_words_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    text = shown(monkeypatch, Terminal())
    assert "[training] {x}" in text
    assert "100 %" in text
    assert "[training] {x}: 100 %" not in text
