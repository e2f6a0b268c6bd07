"""Time as an argument, so that what is measured can be tested without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that can be waited by.

    Attributes:
        now: seconds since some moment.
        wait: lets so many seconds pass.
    """

    now: Callable[[], float] = time.perf_counter
    wait: Callable[[float], None] = time.sleep
