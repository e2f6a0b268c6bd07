"""Ctrl-C as a question that is asked between passes, so that the engine is never torn in the middle of one."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupt:
    """While it is entered, the first Ctrl-C sets `asked`; the second raises `KeyboardInterrupt` as usual.

    Attributes:
        asked: whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        """Nothing was pressed yet."""
        self.asked = False

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signal back to whoever had it."""
        signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
