"""Heads trained with the model draft better than heads grafted afterwards."""

from __future__ import annotations

from collections.abc import Mapping

from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding
from paper.drafting_figures import acceptance_table
from paper.kinds import GRAFTED as AFTERWARDS
from paper.kinds import KINDS, PARALLEL, TRAINED, compared, found_by_kind, jobs_of_kinds, named
from paper.variants import amount_of, size_of, with_heads


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    found = found_by_kind(budget, figures)
    says = "trained with the model above grafted"
    first = figures[with_heads(budget, PARALLEL, budget.seeds[0]).name]
    return Finding(
        model=size_of(budget, first["parameters"]) + " with its heads",
        data=amount_of(budget),
        comparisons=tuple(
            comparison
            for kind in KINDS
            for comparison in compared(says, f"{kind} heads", found[kind, TRAINED], found[kind, AFTERWARDS])
        ),
        tables=(acceptance_table("heads", named(found)),),
        remarks=(
            "As many tokens go through grafted heads as through those trained with the model, but they are the model's "
            "own text, a quarter as much four times, with its distribution as the target; the trunk under them has "
            "learnt nothing but the next token, for as many steps. Its training comes on top, so the two together "
            "take longer than training both at once.",
            "Parallel heads have the same shape either way. In sequence, modules trained with the model have weights "
            "of their own for each depth, the grafted one is unrolled.",
            "Grafted heads are trained as `headstart graft` does by itself: each further depth weighs 0.8 times the "
            "one before, weight decay is a tenth of that of models, and the better of two steps is kept. Heads trained "
            "with the model all weigh alike, and there is one step, the last.",
        ),
    )


GRAFTED = Claim(
    name="grafted",
    statement="Heads trained with the model draft better than heads grafted on it afterwards",
    source="Gloeckle et al. 2404.19737, section 3.2",
    method="four-token models against the next-token model of the same trunk, steps and seed with heads of "
    "`headstart graft`; held-out code written on by the native engine, at most three guesses a pass",
    jobs=jobs_of_kinds,
    find=_find,
)
