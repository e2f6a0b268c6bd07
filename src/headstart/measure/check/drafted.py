"""How much a server drafted during a test: where nothing was, the test says nothing about drafting."""

from __future__ import annotations

from headstart.measure.bench.server_counters import read_counters
from headstart.measure.check.answers import Asker
from headstart.measure.openai_reply import Guesses


class DraftMeter:
    """Reads a server's counts of drafts: at its `/metrics`, or else in its answers.

    The counters are of all requests, so others' count too.

    Example:
        >>> meter = DraftMeter(asker)
        >>> answer = asker.ask(prompt, 48)
        >>> meter.lap()
        Guesses(drafted=40, accepted=31)
    """

    def __init__(self, asker: Asker) -> None:
        """Begin to count.

        Args:
            asker: through which the server is asked.
        """
        self._asker = asker
        self._before = self._published()
        self._said_before = asker.guesses

    def lap(self) -> Guesses | None:
        """What was drafted since the last lap; `None` if the server does not tell."""
        published, said = self._published(), self._asker.guesses
        told = _since(published, self._before) if published is not None else _since(said, self._said_before)
        self._before, self._said_before = published, said
        return told

    def _published(self) -> Guesses | None:
        counters = read_counters(self._asker.url)
        if counters is None or not counters.tells_drafts:
            return None
        return Guesses(counters.drafted, counters.accepted)


def _since(now: Guesses | None, before: Guesses | None) -> Guesses | None:
    if now is None:
        return None
    before = before or Guesses(0, 0)
    return Guesses(now.drafted - before.drafted, now.accepted - before.accepted)
