"""The measured time of a trunk pass, as a function of its rows.

Nothing here knows what a row costs in theory: the curve is what was measured
on this machine, kept up to date by the passes that run anyway. It need not be
smooth (kernels run rows in tiles, so it has steps), only not falling.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

import numpy as np

from headstart.errors import ConfigError

# A pass moves the estimate by at most LEARNING_RATE * MAX_SURPRISE in the logarithm (2 %), however late
# it was: small deviations are averaged, large ones only vote "higher" or "lower", as in a running median.
LEARNING_RATE = 0.2
MAX_SURPRISE = 0.1

# Share of each correction that is taken to be the machine's (clock, neighbours, longer contexts) and so
# applied to every row count. Without it, sizes that are not in use at present would keep the figures of
# another time, and a curve that once looked too dear would never be tried again.
SHARED_CORRECTION = 0.5


class CostCurve:
    """C(R), seconds of a trunk pass over R rows.

    Between measured points C is linear; beyond the last it goes on with the
    last slope; before the first it is proportional to the rows left out down to
    half the first point. With a single point it is proportional to R, the most
    cautious guess: nothing is known of what a further row costs, so none is
    assumed to be cheap.

    Example:
        >>> curve = CostCurve({1: 0.004, 8: 0.006})
        >>> curve.relative(8)
        1.5

    Args:
        points: seconds for each measured number of rows; at least one.

    Raises:
        ConfigError: no points, rows below 1, or seconds that are not positive.
    """

    def __init__(self, points: Mapping[int, float]) -> None:
        """Take the measured points."""
        if not points:
            raise ConfigError("A cost curve has no points: give the seconds of at least one pass, e.g. {1: 0.004}.")
        for rows, seconds in points.items():
            if rows < 1 or not (math.isfinite(seconds) and seconds > 0):
                raise ConfigError(
                    f"Cost curve point {rows!r}: {seconds!r}: rows must be at least 1 and seconds finite and positive. "
                    "Measure the curve anew."
                )
        self._rows = sorted(points)
        # as observed; noise may make them fall, `_seconds` is the non-falling curve over them
        self._observed = [float(points[rows]) for rows in self._rows]
        self._seconds: list[float] = []
        self._table: list[float] = []
        self._refresh()

    @property
    def points(self) -> dict[int, float]:
        """The present estimate at the measured row counts, in seconds."""
        return dict(zip(self._rows, self._seconds, strict=True))

    def cost(self, rows: int) -> float:
        """Seconds of a pass over `rows` rows (at least 1)."""
        knots, seconds = self._rows, self._seconds
        if len(knots) == 1:
            return seconds[0] * rows / knots[0]
        right = min(max(bisect_left(knots, rows), 1), len(knots) - 1)
        left = right - 1
        slope = (seconds[right] - seconds[left]) / (knots[right] - knots[left])
        # the floor holds only left of the first point, where a steep first slope could reach zero
        return max(seconds[left] + slope * (rows - knots[left]), 0.5 * seconds[0])

    def costs(self, first_rows: int, last_rows: int) -> list[float]:
        """Seconds of passes over `first_rows` (at least 1), one more, and so on up to `last_rows`."""
        if last_rows > len(self._table):
            self._table = self._tabulate(last_rows)
        return self._table[first_rows - 1 : last_rows]

    def _tabulate(self, last_rows: int) -> list[float]:
        """C(1), C(2), ..., for policies, which ask for many of them between two observations."""
        # left of the first point the curve may have a bend between the points
        bent = range(2, min(self._rows[0], last_rows))
        inner = [rows for rows in self._rows if 1 < rows < last_rows]
        marks = [1, *bent, *inner, last_rows]
        seconds: list[float] = np.interp(range(1, last_rows + 1), marks, [self.cost(rows) for rows in marks]).tolist()
        return seconds

    def relative(self, rows: int) -> float:
        """v(R) = C(R) / C(1)."""
        return self.cost(rows) / self.cost(1)

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a pass that ran: `rows` rows took `seconds`.

        The points on both sides of `rows` take the correction by nearness, all
        others a share of it. No single pass moves a point by more than 2 %.
        """
        if not (math.isfinite(seconds) and seconds > 0):
            return  # a clock that stood still says nothing
        surprise = math.log(seconds / self.cost(rows))
        correction = LEARNING_RATE * min(max(surprise, -MAX_SURPRISE), MAX_SURPRISE)
        everywhere = math.exp(SHARED_CORRECTION * correction)
        observed = [value * everywhere for value in self._observed]
        for index, nearness in self._neighbours(rows):
            observed[index] = self._observed[index] * math.exp(
                (SHARED_CORRECTION + (1 - SHARED_CORRECTION) * nearness) * correction
            )
        self._observed = observed
        self._refresh()

    def _neighbours(self, rows: int) -> list[tuple[int, float]]:
        """The points around `rows`, each with its nearness; nearnesses sum to 1."""
        knots = self._rows
        right = bisect_left(knots, rows)
        if right == len(knots):
            return [(right - 1, 1.0)]
        if right == 0 or knots[right] == rows:
            return [(right, 1.0)]
        to_right = (rows - knots[right - 1]) / (knots[right] - knots[right - 1])
        return [(right - 1, 1 - to_right), (right, to_right)]

    def _refresh(self) -> None:
        highest = 0.0
        seconds = []
        for value in self._observed:
            highest = max(highest, value)
            seconds.append(highest)
        self._seconds = seconds
        self._table = []
