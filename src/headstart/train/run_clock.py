"""The time that a run has taken, over all the times that it was taken up."""

from __future__ import annotations

import time

from headstart.train.run_directory import RunDirectory

_SPENT = "spent_s"

# seconds of the account that a crash may lose
_NOTE_EVERY_S = 5.0


class RunClock:
    """Counts seconds in a run's folder.

    Attributes:
        limit_s: seconds that the run may take, or `None`.
    """

    def __init__(self, run: RunDirectory, minutes: float | None) -> None:
        """Go on counting.

        Args:
            run: the folder.
            minutes: that the run may take.
        """
        self.limit_s = None if minutes is None else 60.0 * minutes
        self._run = run
        self._before = float(run.recall(_SPENT) or 0.0)
        self._begun = self._noted = time.monotonic()

    @property
    def spent_s(self) -> float:
        """Seconds that the run has taken."""
        return self._before + time.monotonic() - self._begun

    @property
    def left_s(self) -> float:
        """Seconds that it may still take; endless without a limit."""
        return float("inf") if self.limit_s is None else self.limit_s - self.spent_s

    def note(self, *, at_once: bool = False) -> None:
        """Write the account down, if it has been some seconds since or `at_once`."""
        now = time.monotonic()
        if at_once or now - self._noted >= _NOTE_EVERY_S:
            self._noted = now
            self._run.remember(_SPENT, self.spent_s)
