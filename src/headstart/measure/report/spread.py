"""A figure over its repetitions, and the percentiles of many."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.measure.numbers import significant


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over its repetitions.

    Attributes:
        median: of them.
        lowest: of them.
        highest: of them.
    """

    median: float
    lowest: float
    highest: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return Spread(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{significant(self.median)} ({significant(self.lowest)} to {significant(self.highest)})"


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least this share of the values do not exceed.

    Args:
        ordered: ascending, at least one.
        share: in (0, 1].
    """
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]
