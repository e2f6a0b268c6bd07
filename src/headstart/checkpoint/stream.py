"""Tokens to text while they arrive."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable


class StreamDecoder:
    """Turns tokens into text bit by bit; each token costs what it costs to read it.

    A character whose bytes are still to come is held back. Bytes that can no
    longer become a character are U+FFFD at once; those left at the end are
    U+FFFD at `finish`. So all that was returned, joined, is the text of all
    tokens, and no piece of it is ever taken back.

    Example:
        >>> stream = tokenizer.stream()
        >>> "".join(stream.push([token]) for token in ids) + stream.finish() == tokenizer.decode(ids)
        True
    """

    def __init__(self, bytes_of: Callable[[int], bytes], *, strips_first_space: bool) -> None:
        """See `Tokenizer.stream`, which makes these.

        Args:
            bytes_of: the bytes of a token; empty for one that is not to be shown.
            strips_first_space: whether the text loses one leading space.
        """
        self._bytes_of = bytes_of
        self._strips_first_space = strips_first_space
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True

    def push(self, ids: Iterable[int]) -> str:
        """The text that became final with these tokens; may be empty."""
        raw = b"".join(map(self._bytes_of, ids))
        if self._at_start and raw:
            self._at_start = False
            if self._strips_first_space:
                raw = raw.removeprefix(b" ")
        return self._utf8.decode(raw)

    def finish(self) -> str:
        """The text that was held back; the decoder is then as new."""
        rest = self._utf8.decode(b"", final=True)
        self._at_start = True
        return rest
