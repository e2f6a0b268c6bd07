"""What the engine asks of a tokenizer: ids to text and back, and where a text ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class StreamDecoder(Protocol):
    """Turns tokens into text as they come, never splitting a character."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that became certain with these tokens."""

    def finish(self) -> str:
        """The rest, with U+FFFD for bytes that no character completes."""


class Tokenizer(Protocol):
    """Ids to text and back; `headstart.checkpoint.Tokenizer` is one."""

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a text."""

    def encode(self, text: str) -> list[int]:
        """The ids of a plain text, with what the model wants before it."""

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation up to where the model is to answer."""

    def stream(self) -> StreamDecoder:
        """A decoder for one sequence."""
