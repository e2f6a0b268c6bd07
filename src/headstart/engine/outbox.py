"""News and accounts that no one has fetched yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from headstart.errors import ConfigError
from headstart.records import Completion, Event


class Outbox:
    """Events in the order they came, and the results of sequences that have ended."""

    def __init__(self) -> None:
        """Start empty."""
        self._events: deque[Event] = deque()
        self._results: dict[int, Completion | Exception] = {}

    def __bool__(self) -> bool:
        """Whether there is news."""
        return bool(self._events)

    def post(self, event: Event) -> None:
        """Add news."""
        self._events.append(event)

    def take(self) -> list[Event]:
        """All news, once."""
        events = list(self._events)
        self._events.clear()
        return events

    def take_of(self, ids: Collection[int]) -> list[Event]:
        """News of some sequences, once; that of others stays."""
        events = [event for event in self._events if event.sequence_id in ids]
        if events:
            self._events = deque(event for event in self._events if event.sequence_id not in ids)
        return events

    def keep(self, sequence_id: int, result: Completion | Exception) -> None:
        """Keep what a sequence came to: its account, or what made it fail."""
        self._results[sequence_id] = result

    def fetch(self, sequence_id: int) -> Completion:
        """The account of a sequence, once.

        Raises:
            ConfigError: there is none, or it was fetched already.
            Exception: what made the sequence fail.
        """
        result = self._results.pop(sequence_id, None)
        if result is None:
            raise ConfigError(f"Sequence {sequence_id} is unknown: a completion can be fetched once. Keep the first.")
        if isinstance(result, Exception):
            raise result
        return result

    def forget(self, ids: Collection[int]) -> None:
        """Drop news and accounts of some sequences."""
        self.take_of(ids)
        for sequence_id in ids:
            self._results.pop(sequence_id, None)

    def clear(self) -> None:
        """Drop everything."""
        self._events.clear()
        self._results.clear()
