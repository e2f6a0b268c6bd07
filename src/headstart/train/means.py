"""Means over rows, of which there may be none."""

from __future__ import annotations

import math


def mean(total: float, count: int) -> float:
    """Of a sum over so many; no number if there were none."""
    return total / count if count else math.nan


def spoken(value: float | None, digits: int) -> str:
    """A mean for people, as it is or as a metrics file holds it: a dash where there is none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"
