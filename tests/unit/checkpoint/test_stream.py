"""Streaming: the same text as decoding at once, never a part of a character."""

from __future__ import annotations

import pytest

from headstart.checkpoint import StreamDecoder

REPLACEMENT = "\ufffd"


def stream(*, strips_first_space: bool = False) -> StreamDecoder:
    """A decoder whose tokens are bytes; 256 stands for a token without bytes."""
    return StreamDecoder(lambda token: bytes([token]) if token < 256 else b"", strips_first_space=strips_first_space)


def test_a_character_comes_out_whole() -> None:
    decoder = stream()
    assert [decoder.push([byte]) for byte in "a🤗é".encode()] == ["a", "", "", "", "🤗", "", "é"]
    assert decoder.finish() == ""


def test_what_is_left_at_the_end_is_replaced() -> None:
    decoder = stream()
    assert decoder.push("🤗".encode()[:3]) == ""
    assert decoder.finish() == REPLACEMENT


@pytest.mark.parametrize(
    ("raw", "pieces"),
    [
        (b"\xffa", [REPLACEMENT, "a"]),
        (b"\xc3a", ["", REPLACEMENT + "a"]),  # could still become a character until the "a"
        (b"\xe2\x82\xe2\x82\xac", ["", "", REPLACEMENT, "", "€"]),
        (b"\xc0\x80", [REPLACEMENT, REPLACEMENT]),
    ],
)
def test_bytes_that_can_become_nothing_come_out_at_once(raw: bytes, pieces: list[str]) -> None:
    decoder = stream()
    assert [decoder.push([byte]) for byte in raw] == pieces
    assert decoder.finish() == ""


def test_one_leading_space_is_stripped_once() -> None:
    decoder = stream(strips_first_space=True)
    assert decoder.push([256]) == ""  # nothing was shown yet, so the text has not begun
    assert decoder.push(b"  a") == " a"
    assert decoder.push(b" b") == " b"


def test_a_text_of_one_space_is_stripped_whole() -> None:
    decoder = stream(strips_first_space=True)
    assert decoder.push(b" ") == ""
    assert decoder.push(b" ") == " "


def test_after_finish_a_new_text_begins() -> None:
    decoder = stream(strips_first_space=True)
    assert decoder.push(b" a\xc3") + decoder.finish() == "a" + REPLACEMENT
    assert decoder.push(b" b") + decoder.finish() == "b"
