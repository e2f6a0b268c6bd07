"""The bound, against the best trees for a trunk whose distribution is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.errors import ConfigError
from headstart.measure.plan import DraftingSetup, likeliest_tree, most_kept_guesses

FLAT = CostCurve({1: 1.0})


def kept_guesses(distribution: list[float], rows: int) -> float:
    """Expected guesses kept by the best tree, where every token has this distribution whatever came before."""
    setup = DraftingSetup(acceptance=(distribution,), pass_costs=FLAT, max_depth=64)
    return sum(likeliest_tree(setup, rows, 64).path_probabilities)


@pytest.mark.parametrize("base", [0.5, 0.3])
def test_a_drafter_that_knows_the_trunk_stays_below_and_comes_near(base: float) -> None:
    distribution = [(1 - base) * base**rank for rank in range(20)]
    logs = np.log(distribution)
    entropy, second = -float(distribution @ logs), float(distribution @ logs**2)
    rows = (64, 4096)
    best = [kept_guesses(distribution, number) for number in rows]
    bounds = [most_kept_guesses(number, entropy, second) for number in rows]
    assert all(kept < bound for kept, bound in zip(best, bounds, strict=True))
    # what 64 times the rows bring is not above what the bound allows for them, and not far from log(P) / entropy
    assert math.log(64) / entropy * 0.8 < best[1] - best[0] < bounds[1] - bounds[0]


def test_no_more_is_kept_than_has_rows() -> None:
    assert most_kept_guesses(1, 0.01, 0.5) == 0.0
    assert most_kept_guesses(3, 0.01, 0.5) == 3.0


@pytest.mark.parametrize(
    ("rows", "entropy", "second"), [(0, 1.0, 2.0), (4, 0.0, 2.0), (4, 1.5, 2.0), (4, math.nan, 2.0)]
)
def test_what_no_text_can_have_is_refused(rows: int, entropy: float, second: float) -> None:
    with pytest.raises(ConfigError, match="must be"):
        most_kept_guesses(rows, entropy, second)
