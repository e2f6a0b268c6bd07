"""What a long run tells of itself, and the places at which it may be stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headstart.train.run_clock import RunClock

Phase = Literal["writing", "reading", "preparing", "training", "joint"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a phase is.

    Attributes:
        phase: which.
        done: of `total`, in whatever the phase counts: tokens, documents, steps, or seconds.
        total: see `done`.
        note: further figures for people, such as the loss.
    """

    phase: Phase
    done: float
    total: float
    note: str


Show = Callable[[Progress], None]
"""Told of progress, some times a second at most places."""


class StoppedError(Exception):
    """The run was asked to stop, at a place from which it can go on."""


class Reporter:
    """Tells of progress, notes the time spent, and stops the run if asked to."""

    def __init__(self, clock: RunClock, show: Show, should_stop: Callable[[], bool]) -> None:
        """Take the listeners.

        Args:
            clock: of the run.
            show: told of progress.
            should_stop: asked after each piece of work.
        """
        self._clock, self._show, self._should_stop = clock, show, should_stop

    def tell(self, phase: Phase, done: float, total: float, note: str) -> None:
        """Tell of a piece of work that is done.

        Raises:
            StoppedError: the run is to stop.
        """
        self._clock.note()
        self._show(Progress(phase=phase, done=done, total=total, note=note))
        if self._should_stop():
            self._clock.note(at_once=True)
            raise StoppedError
