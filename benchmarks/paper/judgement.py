"""Whether figures bear out what was claimed, by one rule for all claims.

A comparison is a number for each seed that is above zero where the claim is borne out, such as what one model reached
beyond another that was trained with the same seed. It holds if their mean lies above zero by more than Student's t
allows to chance at 5 %, to both sides: with three seeds by 4.3 of its standard errors. It fails if the same is true
below; else the difference is within noise. Fewer than three seeds decide nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "does not hold", "within noise", "too few seeds to say"]

FEWEST_SEEDS = 3

# standard errors that the mean of so many normal numbers lies from the true one in all but 5 % of cases, to both sides:
# Student's quantiles at 97.5 % for one degree of freedom fewer
_STANDARD_ERRORS = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One thing that a claim says.

    Attributes:
        says: in words, such as "tokens a pass: sequence above parallel".
        differences: by seed, above zero where it is so; at least one.
        unit: of these, if they have one.
    """

    says: str
    differences: tuple[float, ...]
    unit: str = ""

    @property
    def mean(self) -> float:
        """Of the differences."""
        return statistics.fmean(self.differences)

    @property
    def outcome(self) -> Outcome:
        """What the differences come to."""
        count = len(self.differences)
        if count < FEWEST_SEEDS:
            return "too few seeds to say"
        allowed = _STANDARD_ERRORS[min(count, max(_STANDARD_ERRORS))]  # a little strict with more than ten
        chance = allowed * statistics.stdev(self.differences) / math.sqrt(count)
        if self.mean > chance:
            return "holds"
        return "does not hold" if self.mean < -chance else "within noise"

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        spread = ", ".join(f"{difference:+.3g}" for difference in self.differences)
        return f"{self.says}: {self.outcome} ({self.mean:+.3g}{unit} on average; by seed {spread})"


def overall(comparisons: Sequence[Comparison]) -> str:
    """What all comparisons of a claim come to, in a few words."""
    outcomes = [comparison.outcome for comparison in comparisons]
    if len(set(outcomes)) == 1:
        return outcomes[0]
    counted = (
        f"{kind} in {outcomes.count(kind)}"
        for kind in ("holds", "does not hold", "within noise", "too few seeds to say")
        if kind in outcomes
    )
    return f"{', '.join(counted)} of {len(outcomes)}"


def by_seed(better: Sequence[float], worse: Sequence[float]) -> tuple[float, ...]:
    """Differences of two figures, seed by seed."""
    return tuple(one - other for one, other in zip(better, worse, strict=True))
