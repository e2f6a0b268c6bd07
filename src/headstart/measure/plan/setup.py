"""What a plan starts from: how often guesses are right, what drafting costs, and what a pass costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.decoding.cost_curve import CostCurve
from headstart.errors import ConfigError
from headstart.measure.plan.roofline import Roofline

# Rounding of shares that were printed with a few digits may take their sum a little above 1.
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DraftingSetup:
    """A drafter beside a trunk, as figures.

    Attributes:
        acceptance: [depth][rank], for depth 1, 2, ...: how often the drafter's likeliest guess is right there, and
            then its second, its third, if all before was right. The last depth's hold for deeper ones.
        pass_costs: the cost curve of the trunk, in any unit of time; or a roofline, from which it is computed.
        draft_cost_per_depth: of one depth of drafting, in plain passes at the same concurrency.
        draft_cost_per_round: of what drafting takes besides, however deep it goes, likewise.
        concurrency: sequences that share a pass.
        max_depth: depth at most.

    Raises:
        ConfigError: a value is out of its range.
    """

    acceptance: Sequence[Sequence[float]]
    pass_costs: CostCurve | Roofline
    draft_cost_per_depth: float = 0.0
    draft_cost_per_round: float = 0.0
    concurrency: int = 1
    max_depth: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no share, no cost, or no count."""
        if not self.acceptance:
            raise ConfigError("No acceptance is given: it takes that of depth 1 at least, such as 0.8.")
        for depth, ranks in enumerate(self.acceptance, start=1):
            _check_ranks(ranks, depth)
        for name in ("draft_cost_per_depth", "draft_cost_per_round"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"{name} = {value}: it must be 0 or more, in plain passes.")
        for name, most in (("concurrency", 4096), ("max_depth", 64)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise ConfigError(f"{name} = {value}: it must be a number from 1 to {most}.")

    @property
    def chain_acceptance(self) -> tuple[float, ...]:
        """The conditional acceptance of the likeliest guess at depth 1 to `max_depth`."""
        return tuple(self.ranks(depth)[0] for depth in range(1, self.max_depth + 1))

    def ranks(self, depth: int) -> Sequence[float]:
        """Acceptance by rank at a depth, 1 or more."""
        return self.acceptance[min(depth, len(self.acceptance)) - 1]

    def curve(self, nodes: int) -> CostCurve:
        """The cost curve as far as `nodes` guesses for each sequence need it."""
        if isinstance(self.pass_costs, CostCurve):
            return self.pass_costs
        return self.pass_costs.curve(self.concurrency, nodes)

    def draft_cost(self, depth: int) -> float:
        """Of a round that goes so deep, in plain passes; 0 for depth 0, which does not ask."""
        return self.draft_cost_per_round + self.draft_cost_per_depth * depth if depth else 0.0


def _check_ranks(ranks: Sequence[float], depth: int) -> None:
    named = "/".join(f"{share:g}" for share in ranks)
    if not ranks or not all(0.0 <= share <= 1.0 for share in ranks):
        raise ConfigError(f"Acceptance at depth {depth}: {named or 'none'}. It must be a share from 0 to 1.")
    if list(ranks) != sorted(ranks, reverse=True):
        raise ConfigError(
            f"Acceptance by rank at depth {depth}: {named}. The likeliest guess comes first, so shares cannot rise."
        )
    if sum(ranks) > 1.0 + _ROUNDING:
        raise ConfigError(
            f"Acceptance by rank at depth {depth}: {named}. Only one guess can be right, so they sum to 1 at most. "
            "If they are the first guess's, the first two's, the first three's, give the differences."
        )
