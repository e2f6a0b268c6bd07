"""What drafting costs, learnt from how long it took."""

from __future__ import annotations

# With each new observation the old ones lose this share of their weight: a memory of some ten rounds.
FORGETTING = 0.1

# No observation counts as more than this many times what was expected: a drafter that first has to read a
# prompt takes long once, which says nothing about the next round.
MAX_SURPRISE = 2.0


class DraftCost:
    """Seconds of drafting for one pass, as a line over its depth.

    A lookup takes about as long however deep it goes; a model of its own takes
    a pass for each depth. The line through what was observed tells which it is.
    """

    def __init__(self) -> None:
        """Begin with drafting thought to be free, so that it is tried."""
        self._num_observed = 0
        # Sums over observations (depth x, seconds y). One of no depth and no time is there from the beginning
        # and stays: as long as all observations have the same depth, time is taken to grow in proportion to it.
        self._weight = 1.0
        self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, depth: int, seconds: float) -> None:
        """Learn from a drafting that reached `depth` (at least 1)."""
        if self._num_observed:
            seconds = min(seconds, MAX_SURPRISE * self.cost(depth))
        self._num_observed += 1
        keep = 1.0 - FORGETTING
        self._weight = 1.0 + keep * (self._weight - 1.0) + 1.0
        self._x = keep * self._x + depth
        self._y = keep * self._y + seconds
        self._xx = keep * self._xx + depth * depth
        self._xy = keep * self._xy + depth * seconds

    @property
    def line(self) -> tuple[float, float]:
        """(seconds that drafting takes in any case, further seconds for each depth), neither below 0."""
        if not self._num_observed:
            return 0.0, 0.0
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - mean_x * mean_x
        covariance = self._xy / self._weight - mean_x * mean_y
        per_depth = min(max(covariance / variance, 0.0), mean_y / mean_x)
        return mean_y - per_depth * mean_x, per_depth

    def cost(self, depth: int) -> float:
        """Seconds that drafting to `depth` is expected to take."""
        base, per_depth = self.line
        return base + per_depth * depth
