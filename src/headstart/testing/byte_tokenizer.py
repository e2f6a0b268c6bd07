"""A tokenizer of a few lines: one id a byte."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.errors import ConfigError


class ByteTokenizer:
    """Ids 0, 1, ... stand for the bytes of an alphabet; the next id ends a text.

    Offers what the engine asks of a tokenizer (`headstart.engine.text.Tokenizer`).

    Example:
        >>> tokenizer = ByteTokenizer(b"abc ")
        >>> tokenizer.encode("cab"), tokenizer.end_ids
        ([2, 0, 1], (4,))
    """

    def __init__(self, alphabet: bytes = bytes(range(256))) -> None:
        """Make one for the distinct bytes of `alphabet`."""
        self._alphabet = alphabet
        self._ids = {byte: index for index, byte in enumerate(alphabet)}
        self.vocab_size = len(alphabet) + 1
        self.end_ids = (len(alphabet),)

    def encode(self, text: str) -> list[int]:
        """One id for each byte.

        Raises:
            ConfigError: a byte is not in the alphabet.
        """
        try:
            return [self._ids[byte] for byte in text.encode()]
        except KeyError as error:
            raise ConfigError(
                f"Byte {error.args[0]:#04x} came; this tokenizer knows {self._alphabet!r}. Use those bytes only."
            ) from None

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The contents of the messages, each followed by the end id."""
        return [token for message in messages for token in (*self.encode(message["content"]), *self.end_ids)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text; the end id has none, and bytes of no character become U+FFFD."""
        stream = self.stream()
        return stream.push(token_ids) + stream.finish()

    def stream(self) -> ByteStream:
        """A decoder for one sequence."""
        return ByteStream(self._alphabet)


class ByteStream:
    """Turns ids into text as they come, never splitting a character."""

    def __init__(self, alphabet: bytes) -> None:
        """Begin a text."""
        self._alphabet = alphabet
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that became certain with these ids."""
        known = len(self._alphabet)
        return self._decoder.decode(bytes(self._alphabet[token] for token in token_ids if token < known))

    def finish(self) -> str:
        """The rest; afterwards a new text may begin."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
