"""What a token stands for: from a vocabulary's spelling to the bytes of text.

Vocabularies spell bytes in one of two ways. *Byte-level* ones (GPT-2 and after)
give each byte a printable character. *Piece* ones (SentencePiece) write text as
it is, spaces as "▁", and bytes without a piece as "<0x0A>". In both, a token's
bytes do not depend on its neighbours, which is what makes streaming simple; the
one exception is the space that pieces put before the first word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Protocol

from tokenizers import decoders

from headstart.errors import UnsupportedError

SPACE_PIECE = "▁"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Protocol):
    """How a vocabulary spells bytes."""

    @property
    def strips_first_space(self) -> bool:
        """Whether the text loses one leading space, which encoding had put there."""

    def to_bytes(self, token: str) -> bytes:
        """The bytes a token stands for."""


def byte_characters() -> dict[str, int]:
    """The byte that each character of GPT-2's alphabet stands for.

    Printable Latin-1 stands for itself, U+0100 and on for the other bytes.

    Source: https://github.com/openai/gpt-2, `encoder.bytes_to_unicode`.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHARACTER = byte_characters()


@dataclass(frozen=True, slots=True)
class ByteLevelSpelling:
    """Every character is a byte; a token with any other character is plain text."""

    strips_first_space: bool = False

    def to_bytes(self, token: str) -> bytes:
        """The bytes a token stands for."""
        try:
            return bytes([_BYTE_OF_CHARACTER[character] for character in token])
        except KeyError:
            return token.encode()


@dataclass(frozen=True, slots=True)
class PieceSpelling:
    """Text with "▁" for a space; with `byte_pieces`, "<0x0A>" is the byte 10."""

    strips_first_space: bool
    byte_pieces: bool

    def to_bytes(self, token: str) -> bytes:
        """The bytes a token stands for."""
        if self.byte_pieces and (match := _BYTE_PIECE.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace(SPACE_PIECE, " ").encode()


def spelling_of(decoder: decoders.Decoder | None) -> Spelling:
    """The spelling that a `tokenizers` decoder undoes.

    Raises:
        UnsupportedError: the decoder is of another make (WordPiece, CTC, ...).
    """
    steps = _steps(json.loads(decoder.__getstate__())) if decoder is not None else []
    names = {step["type"] for step in steps}
    if "ByteLevel" in names and names <= {"ByteLevel", "Fuse"}:
        return ByteLevelSpelling()
    replaces_space = any(
        step["type"] == "Metaspace"
        or (step["type"] == "Replace" and step.get("pattern") == {"String": SPACE_PIECE} and step.get("content") == " ")
        for step in steps
    )
    if replaces_space and names <= {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"}:
        return PieceSpelling(
            strips_first_space=any(_strips_space(step) for step in steps), byte_pieces="ByteFallback" in names
        )
    raise UnsupportedError(
        f"The tokenizer's decoder is {' + '.join(sorted(names)) or 'missing'}; this build reads byte-level "
        "and SentencePiece vocabularies."
    )


def _steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _steps(inner)]
    return [decoder]


def _strips_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "never")
    return step["type"] == "Strip" and step.get("content") == " " and step.get("start", 0) > 0
