"""Progress of a command that goes through phases, on stderr: bars on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

# drawing takes longer than a small step
_DRAW_EVERY_S = 0.2
_LINE_EVERY_S = 30.0


class PhaseProgress:
    """Shows how far each phase is and how long it will take. To be entered.

    On a terminal every phase keeps its bar. Elsewhere there is a line when a phase begins and ends, and twice a minute.
    """

    def __init__(self, *, only_lines: bool = False) -> None:
        """Nothing has begun.

        Args:
            only_lines: on a terminal as well, for phases that are too many for bars.
        """
        self._only_lines = only_lines
        self._stack = ExitStack()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, tuple[float, float]] = {}  # by label: when it was first told of, and how far it was
        self._ended: set[str] = set()
        self._last_s = 0.0

    def __enter__(self) -> Self:
        """Begin to draw, on a terminal."""
        if not self._only_lines and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            # imported late: it takes longer than many a command
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            # labels and notes are neither format strings nor markup
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.percentage:3.0f} %"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
            )
            # no refreshing thread: it would take time from the threads that compute
            self._bars = self._stack.enter_context(Progress(*columns, console=Console(stderr=True), auto_refresh=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bars as they are."""
        self._stack.close()

    def show(self, label: str, done: float, total: float, note: str) -> None:
        """Show how far a phase is.

        Args:
            label: of the phase.
            done: of `total`, in any unit.
            total: see `done`.
            note: further figures.
        """
        now = time.monotonic()
        is_new = label not in self._begun
        if is_new:
            self._begun[label] = (now, done)
        pause = _LINE_EVERY_S if self._bars is None else _DRAW_EVERY_S
        ends = done >= total and label not in self._ended
        if not (is_new or ends or now - self._last_s >= pause):
            return
        if ends:
            self._ended.add(label)
        self._last_s = now
        if self._bars is None:
            share = f"{100 * done / total:.0f} %"
            print(f"{label}: {share}, {self._time_left(label, done, total, now)}{note}", file=sys.stderr, flush=True)
            return
        if is_new:
            self._tasks[label] = self._bars.add_task(label, total=total, note=note)
        self._bars.update(self._tasks[label], completed=done, total=total, note=note, refresh=True)

    def _time_left(self, label: str, done: float, total: float, now: float) -> str:
        begun, before = self._begun[label]
        if done <= before or done >= total:
            return ""
        seconds = (now - begun) * (total - done) / (done - before)
        return f"{spoken_time(seconds)} left, "


def spoken_time(seconds: float) -> str:
    """A length of time for people, such as "2 h 5 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
