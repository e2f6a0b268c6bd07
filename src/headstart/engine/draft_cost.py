"""What drafting costs, learnt from how long it took."""

from __future__ import annotations

# With each new observation the old ones lose this share of their weight: a memory of some ten rounds.
FORGETTING = 0.1

# No observation counts as more than this many times what was expected: a drafter that first has to read a
# prompt takes long once, which says nothing about the next round.
MAX_SURPRISE = 2.0


# With each new reading the old ones lose this share of their weight.
FORGETTING_OF_READING = 0.2


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

    def times(self, factor: float) -> DraftCost:
        """A cost of its own that begins as so many times this one."""
        scaled = DraftCost()
        scaled._num_observed, scaled._weight = self._num_observed, self._weight
        scaled._x, scaled._xx = self._x, self._xx
        scaled._y, scaled._xy = factor * self._y, factor * self._xy
        return scaled

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

    @property
    def is_known(self) -> bool:
        """Whether drafting was ever seen."""
        return self._num_observed > 0

    @property
    def usual(self) -> float:
        """Seconds that drafting took lately, to the depths that it went to; 0 if it was not seen."""
        return self._y / (self._weight - 1.0) if self._num_observed else 0.0


class DraftCosts:
    """The same for any number of sequences at once, and the time of reading what was missed.

    A drafter that was not asked for a while, or just met a prompt, reads first.
    That comes on top, once, and must not be taken for the cost of drafting.
    """

    def __init__(self) -> None:
        """Begin with everything thought to be free."""
        self._by_size: dict[int, DraftCost] = {}  # by the binary length of the number of sequences
        # Sums: to read a few tokens takes little less than to read a dozen, so each reading counts by its length.
        self._read_tokens = self._read_s = 0.0

    def of(self, num_sequences: int) -> DraftCost:
        """The cost of drafting for about so many sequences (at least 1).

        For more than were ever drafted for it begins as if each of them cost what one of fewer does, which is more
        than it will be.
        """
        size = num_sequences.bit_length()
        cost = self._by_size.setdefault(size, DraftCost())
        if not cost.is_known:
            known = [fewer for fewer, other in self._by_size.items() if fewer < size and other.is_known]
            if known:
                cost = self._by_size[size] = self._by_size[max(known)].times(2.0 ** (size - max(known)))
        return cost

    def reading_s(self, backlog: int) -> float:
        """Seconds that reading `backlog` missed tokens is expected to take."""
        return backlog * self._read_s / self._read_tokens if self._read_tokens else 0.0

    def observe(self, depth: int, num_sequences: int, backlog: int, seconds: float) -> None:
        """Learn from a drafting.

        Args:
            depth: that it reached; at least 1.
            num_sequences: that it was for.
            backlog: tokens that were read before, over all sequences.
            seconds: that it took in all.
        """
        cost = self.of(num_sequences)
        if backlog == 0:
            cost.observe(depth, seconds)
        elif cost.is_known:
            keep = 1.0 - FORGETTING_OF_READING
            self._read_tokens = keep * self._read_tokens + backlog
            self._read_s = keep * self._read_s + max(seconds - cost.cost(depth), 0.0)
