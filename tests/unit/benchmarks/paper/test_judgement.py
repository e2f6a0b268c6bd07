"""Whether figures bear a claim out."""

from __future__ import annotations

import numpy as np
import pytest

from paper.judgement import Comparison, overall


@pytest.mark.parametrize(
    ("differences", "outcome"),
    [
        ((0.5, 0.6, 0.4), "holds"),
        ((-0.5, -0.6, -0.4), "does not hold"),
        ((0.5, 0.6, -0.1), "within noise"),
        ((0.01, 0.02, 3.0), "within noise"),  # all above zero, but their mean is one seed's
        ((-0.01, -0.02, -3.0), "within noise"),
        ((1.0, 2.0, 3.5), "within noise"),  # three standard errors, which three seeds give by chance
        ((1.0, 2.0, 3.5, 2.2, 1.5), "holds"),
        ((3.0, 3.0, 3.0, 3.0, -0.1), "holds"),
        ((0.0, 0.0, 0.0), "within noise"),
        ((0.5, 0.5, 0.5), "holds"),
        ((5.0, 6.0), "too few seeds to say"),
        ((-5.0,), "too few seeds to say"),
    ],
)
def test_a_comparison_needs_three_seeds_that_agree_beyond_their_spread(
    differences: tuple[float, ...], outcome: str
) -> None:
    assert Comparison("x", differences).outcome == outcome


@pytest.mark.parametrize("seeds", range(3, 12))
def test_where_there_is_nothing_one_comparison_in_twenty_comes_out_at_most(seeds: int) -> None:
    draws = np.random.default_rng(seeds).normal(size=(4000, seeds))
    found = [Comparison("x", tuple(map(float, each))).outcome for each in draws]
    share = sum(outcome != "within noise" for outcome in found) / len(found)
    assert 0.03 < share < 0.06


def test_a_comparison_says_its_outcome_with_every_seed() -> None:
    spoken = str(Comparison("more heads cost bits", (0.5, 0.25, -0.3), "bits a byte"))
    assert spoken == ("more heads cost bits: within noise (+0.15 bits a byte on average; by seed +0.5, +0.25, -0.3)")


def test_outcomes_of_a_claim_are_counted_where_they_differ() -> None:
    holds, fails, noise = (
        Comparison("x", values) for values in ((1.0, 1.0, 1.0), (-1.0, -1.0, -1.0), (1.0, -1.0, 1.0))
    )
    assert overall([holds, holds]) == "holds"
    assert overall([fails]) == "does not hold"
    assert overall([noise, holds, fails, holds]) == "holds in 2, does not hold in 1, within noise in 1 of 4"
