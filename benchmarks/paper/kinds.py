"""Heads of two kinds, each trained with the model and grafted afterwards: what two claims compare in two ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headstart.train.pretrain.model_config import TrainedHeads
from paper.budgets import Budget
from paper.claim import Figures, Job
from paper.drafting_figures import over_seeds
from paper.judgement import Comparison, by_seed
from paper.variants import drafted, grafted, next_token, with_heads

PARALLEL: TrainedHeads = "parallel"
SEQUENTIAL: TrainedHeads = "sequential"
KINDS = (PARALLEL, SEQUENTIAL)
TRAINED, GRAFTED = "trained with the model", "grafted afterwards"

ByKind = Mapping[tuple[TrainedHeads, str], Sequence[Figures]]
"""What heads are worth, by seed, by their kind and how they came about."""


def jobs_of_kinds(budget: Budget) -> Iterator[Job]:
    """All that is trained and measured."""
    for seed in budget.seeds:
        yield next_token(budget, seed)
        for kind in KINDS:
            yield from (with_heads(budget, kind, seed), grafted(budget, kind, seed))
            yield from (_measured(budget, kind, how, seed) for how in (TRAINED, GRAFTED))


def found_by_kind(budget: Budget, figures: Mapping[str, Figures]) -> ByKind:
    """What was measured."""
    return {
        (kind, how): [figures[_measured(budget, kind, how, seed).name] for seed in budget.seeds]
        for kind in KINDS
        for how in (TRAINED, GRAFTED)
    }


def named(found: ByKind) -> dict[str, Sequence[Figures]]:
    """The same by names for tables and plots."""
    return {f"{kind}, {how}": each for (kind, how), each in found.items()}


def compared(says: str, whose: str, better: Sequence[Figures], worse: Sequence[Figures]) -> list[Comparison]:
    """Tokens a pass of one against another, greedily and at temperature 1.

    Args:
        says: which is claimed to be above which.
        whose: what they have in common.
        better, worse: by seed.
    """
    return [
        Comparison(f"{whose}, tokens a pass {how}: {says}", by_seed(over_seeds(better, name), over_seeds(worse, name)))
        for how, name in (("greedily", "tau"), ("at temperature 1", "tau_drawn"))
    ]


def _measured(budget: Budget, kind: TrainedHeads, how: str, seed: int) -> Job:
    if how == TRAINED:
        return drafted(budget, with_heads(budget, kind, seed))
    return drafted(budget, next_token(budget, seed), grafted(budget, kind, seed))
