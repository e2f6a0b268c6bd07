"""Where a sequence ends, decided token by token inside whatever a round kept.

A round may keep several tokens at once; the text must end exactly where it
would have, had they come one by one. Text is held back while it could be the
beginning of a stop string, so that no part of one is ever emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.engine.text import StreamDecoder
from headstart.records import FinishReason, SamplingParams


@dataclass(frozen=True, slots=True)
class Ending:
    """What became final of the tokens shown to `StopRules.accept`.

    Attributes:
        num_tokens: how many of them, from the first.
        text: text that became final.
        reason: why the sequence ends after them, or `None`.
    """

    num_tokens: int
    text: str
    reason: FinishReason | None


class StopRules:
    """The ending of one sequence: end tokens, stop strings, length, context."""

    __slots__ = ("_context_left", "_decoder", "_end_tokens", "_held", "_length_left", "_stop", "end_tokens")

    def __init__(
        self, params: SamplingParams, end_ids: Sequence[int], decoder: StreamDecoder, context_left: int
    ) -> None:
        """Rules for a sequence of which nothing is written yet.

        Args:
            params: `stop`, `stop_token_ids`, `ignore_eos` and `max_tokens` count here.
            end_ids: the model's own end tokens.
            decoder: turns the sequence's tokens into text.
            context_left: tokens that fit into the context after the prompt, at least 1.
        """
        self.end_tokens = end_tokens(params, end_ids)
        self._end_tokens = frozenset(self.end_tokens)
        self._stop = params.stop
        self._decoder = decoder
        self._length_left = params.max_tokens
        self._context_left = context_left
        self._held = ""

    @property
    def num_left(self) -> int:
        """Tokens that can still be written."""
        return min(self._length_left, self._context_left)

    def accept(self, token_ids: Sequence[int]) -> Ending:
        """Take tokens in order up to the one that ends the sequence, if one does."""
        pieces = []
        reason: FinishReason | None = None
        count = 0
        for token in token_ids:
            count += 1
            self._length_left -= 1
            self._context_left -= 1
            # an end token's own text is not part of the text
            is_end = token in self._end_tokens
            text, found = ("", False) if is_end else self._release(self._decoder.push((token,)))
            pieces.append(text)
            if is_end or found:
                reason = "stop"
            elif self._length_left == 0:
                reason = "length"
            elif self._context_left == 0:
                reason = "context"
            if reason is not None:
                if not found:
                    text, found = self.finish()
                    pieces.append(text)
                    reason = "stop" if found else reason
                break
        return Ending(count, "".join(pieces), reason)

    def finish(self) -> tuple[str, bool]:
        """The text still held back, and whether a stop string ended it."""
        text, found = self._release(self._decoder.finish())
        if not found:
            text, self._held = text + self._held, ""
        return text, found

    def _release(self, text: str) -> tuple[str, bool]:
        """Add text to what is held; return what is certain, and whether a stop string was completed."""
        if not self._stop:
            return text, False
        held = self._held + text
        # the string completed first ends the text, as if characters came singly; then the longer one
        matches = [(start + len(stop), start) for stop in self._stop if (start := held.find(stop)) >= 0]
        if matches:
            self._held = ""
            return held[: min(matches)[1]], True
        keep = max(_overlap(held, stop) for stop in self._stop)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], False


def end_tokens(params: SamplingParams, end_ids: Sequence[int]) -> tuple[int, ...]:
    """The ids that end a text.

    Args:
        params: `ignore_eos` and `stop_token_ids` count here.
        end_ids: the model's own end tokens.
    """
    return tuple(dict.fromkeys((*(() if params.ignore_eos else end_ids), *params.stop_token_ids)))


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
