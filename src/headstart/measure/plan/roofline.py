"""The time of a pass from a data sheet: what it must read over the memory's speed, or what it must compute.

A pass over R rows of N sequences takes the longer of the two,

    read     (weights + N * cache) / bandwidth
    compute  2 * parameters * R / flops

which no machine beats and few reach: a kernel's start, a reduction or a busy neighbour only adds. In a mixture of
experts the weights that are read grow with the rows, since each row is sent to experts of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headstart.decoding.cost_curve import CostCurve
from headstart.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """The routed part of a mixture of experts; rows are taken to be routed evenly and independently.

    Attributes:
        num_experts: of a layer.
        used: by a row, in each layer.
        share: of the weights that one row reads, those that lie in routed experts.

    Raises:
        ConfigError: a value is out of its range.
    """

    num_experts: int
    used: int
    share: float

    def __post_init__(self) -> None:
        """Refuse counts that cannot be."""
        if not 1 <= self.used <= self.num_experts:
            raise ConfigError(f"{self.used} of {self.num_experts} experts: a row uses one at least, and all at most.")
        if not 0.0 < self.share <= 1.0:
            raise ConfigError(f"Experts' share of the weights = {self.share}: it must be above 0, at most 1.")

    def growth(self, rows: int) -> float:
        """Weights that `rows` rows read together, over those that one reads.

        An expert is spared by all of them with probability (1 - used / num_experts) ** rows.
        """
        touched = 1.0 - (1.0 - self.used / self.num_experts) ** rows
        return 1.0 - self.share + self.share * touched * self.num_experts / self.used


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """A model on a machine.

    Attributes:
        parameters: that one row uses.
        bits: of a weight as stored, scales included.
        bandwidth_bytes_per_s: of the memory where the weights lie.
        flops_per_s: multiplications and additions, each counted.
        cache_bytes: that a pass reads for each sequence: keys and values of its context.
        experts: of a mixture of experts.

    Raises:
        ConfigError: a value is out of its range.
    """

    parameters: float
    bits: float
    bandwidth_bytes_per_s: float
    flops_per_s: float
    cache_bytes: float = 0.0
    experts: Experts | None = None

    def __post_init__(self) -> None:
        """Refuse what is no quantity."""
        for name in ("parameters", "bits", "bandwidth_bytes_per_s", "flops_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"{name} = {value}: it must be a positive number.")
        if not (math.isfinite(self.cache_bytes) and self.cache_bytes >= 0.0):
            raise ConfigError(f"cache_bytes = {self.cache_bytes}: it must be 0 or more.")

    @property
    def balanced_rows(self) -> float:
        """Rows at which computing takes as long as reading what one row reads; beyond, rows cost in full."""
        return self.bits / 8 * self.flops_per_s / (2 * self.bandwidth_bytes_per_s)

    def pass_s(self, rows: int, num_sequences: int) -> float:
        """Seconds of a pass over `rows` rows of `num_sequences` sequences."""
        weight_bytes = self.parameters * self.bits / 8 * (1.0 if self.experts is None else self.experts.growth(rows))
        read_s = (weight_bytes + num_sequences * self.cache_bytes) / self.bandwidth_bytes_per_s
        return max(read_s, 2 * self.parameters * rows / self.flops_per_s)

    def curve(self, num_sequences: int, nodes: int) -> CostCurve:
        """The cost curve at the row counts that 0 to `nodes` guesses for each of the sequences give; exact there."""
        return CostCurve(
            {
                rows: self.pass_s(rows, num_sequences)
                for rows in range(num_sequences, num_sequences * (nodes + 1) + 1, num_sequences)
            }
        )
