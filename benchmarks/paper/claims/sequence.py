"""Modules in sequence draft better than parallel heads."""

from __future__ import annotations

from collections.abc import Mapping

from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding
from paper.drafting_figures import acceptance_table, survival_plot
from paper.kinds import GRAFTED, PARALLEL, SEQUENTIAL, TRAINED, compared, found_by_kind, jobs_of_kinds, named
from paper.variants import amount_of, size_of, with_heads


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    found = found_by_kind(budget, figures)
    first = figures[with_heads(budget, SEQUENTIAL, budget.seeds[0]).name]
    return Finding(
        model=size_of(budget, first["parameters"]) + " with its modules",
        data=amount_of(budget),
        comparisons=tuple(
            comparison
            for how in (TRAINED, GRAFTED)
            for comparison in compared("in sequence above parallel", how, found[SEQUENTIAL, how], found[PARALLEL, how])
        ),
        tables=(acceptance_table("heads", named(found)),),
        plots=(survival_plot("sequence", "Kept so far by depth, at temperature 1", named(found)),),
        remarks=(
            "Modules in sequence read the tokens guessed so far and run one after the other; parallel heads read the "
            "text alone. Tokens a pass leave out what running them costs.",
        ),
    )


SEQUENCE = Claim(
    name="sequence",
    statement="Modules in sequence draft better than parallel heads",
    source="DeepSeek-AI 2412.19437, section 2.2; Ankner et al. 2402.05109",
    method="four-token models of both kinds with the same trunk, steps and seed, and both kinds grafted on the "
    "next-token model; held-out code written on by the native engine, at most three guesses a pass",
    jobs=jobs_of_kinds,
    find=_find,
)
