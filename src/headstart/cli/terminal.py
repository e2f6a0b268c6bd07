"""Writing a model's text where a person reads it: no control characters, drafted tokens in colour.

What a model writes is not to be trusted: an escape sequence could retitle the
window or hide text. On a terminal, controls are therefore shown as signs.
Elsewhere the text goes out as it is, byte for byte.
"""

from __future__ import annotations

import os
import unicodedata
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from headstart.engine.text import StreamDecoder
    from headstart.records import Event

_DRAFTED = "\x1b[32m"
_DEFAULT = "\x1b[39m"

# U+2400 and on are pictures of the C0 controls; C1 controls have none
_SIGNS = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)

_JOINER = "\u200d"


def printable(text: str) -> str:
    """The text with visible signs for all control characters but newline and tab."""
    return text.translate(_SIGNS)


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and its user has not declined them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class AnswerWriter:
    """Writes the events of one sequence as they come.

    Args:
        stream: where to.
        decoder: a fresh one of the sequence's tokenizer; tells which characters
            came from drafted tokens.
    """

    def __init__(self, stream: TextIO, decoder: StreamDecoder) -> None:
        """Begin an answer."""
        self._stream = stream
        self._decoder = decoder
        self._is_terminal = stream.isatty()
        self._coloured = wants_colour(stream)
        # of characters that tokens made certain but the engine still holds back: whether drafted
        self._drafted: deque[bool] = deque()
        self._in_colour = False
        self._last = "\n"

    def write(self, event: Event) -> None:
        """Write an event's text."""
        if self._coloured:
            self._write_coloured(event)
        else:
            self._stream.write(printable(event.text) if self._is_terminal else event.text)
        self._stream.flush()
        self._last = event.text[-1:] or self._last

    def end(self) -> None:
        """Leave the stream at the beginning of a line, in its own colour."""
        if self._in_colour:
            self._stream.write(_DEFAULT)
            self._in_colour = False
        if self._last != "\n":
            self._stream.write("\n")
            self._last = "\n"
        self._stream.flush()

    def _write_coloured(self, event: Event) -> None:
        for index, token in enumerate(event.token_ids):
            self._drafted.extend([index < event.num_drafted_kept] * len(self._decoder.push([token])))
        marked = []
        previous, drafted = self._last, self._in_colour
        for character in event.text:
            # the engine flushes what no token completes any more; that is nobody's guess
            own = self._drafted.popleft() if self._drafted else False
            # an escape inside what is shown as one character would tear it
            drafted = drafted if _continues(character, previous) else own
            marked.append((drafted, character))
            previous = character
        for drafted, characters in groupby(marked, key=lambda pair: pair[0]):
            if drafted != self._in_colour:
                self._stream.write(_DRAFTED if drafted else _DEFAULT)
                self._in_colour = drafted
            self._stream.write(printable("".join(character for _, character in characters)))


def _continues(character: str, previous: str) -> bool:
    """Whether a character is drawn as a part of the one before: accents, joined emoji, skin tones, flags."""
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or _JOINER in (character, previous)
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or (_is_flag_letter(character) and _is_flag_letter(previous))
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
