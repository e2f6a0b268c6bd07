"""Modules in sequence draft better than parallel heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paper import drafting_figures as figures_of
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job
from paper.drafting_figures import acceptance_table, survival_plot
from paper.judgement import Comparison, by_seed
from paper.variants import amount_of, drafted, grafted, next_token, size_of, with_heads


def _jobs(budget: Budget) -> Iterator[Job]:
    for seed in budget.seeds:
        alone = next_token(budget, seed)
        yield alone
        for kind in ("sequential", "parallel"):
            together, heads = with_heads(budget, kind, seed), grafted(budget, kind, seed)
            yield from (together, heads, drafted(together), drafted(alone, heads))


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    names = {
        ("sequential", "trained with the model"): "in sequence, trained with the model",
        ("parallel", "trained with the model"): "parallel, trained with the model",
        ("sequential", "grafted"): "in sequence, grafted",
        ("parallel", "grafted"): "parallel, grafted",
    }
    kinds: dict[str, list[Figures]] = {}
    for (kind, how), name in names.items():
        for seed in budget.seeds:
            together, alone = with_heads(budget, kind, seed), next_token(budget, seed)
            job = drafted(alone, grafted(budget, kind, seed)) if how == "grafted" else drafted(together)
            kinds.setdefault(name, []).append(figures[job.name])
    comparisons = [
        Comparison(
            f"{how}, tokens a pass {when}: in sequence above parallel",
            by_seed(
                figures_of.over_seeds(kinds[names["sequential", how]], name),
                figures_of.over_seeds(kinds[names["parallel", how]], name),
            ),
        )
        for how in ("trained with the model", "grafted")
        for when, name in (("greedily", "tau"), ("at temperature 1", "tau_drawn"))
    ]
    first = figures[with_heads(budget, "sequential", budget.seeds[0]).name]
    return Finding(
        model=size_of(budget, first["parameters"]) + " with its modules",
        data=amount_of(budget, "standard library"),
        comparisons=tuple(comparisons),
        tables=(acceptance_table("heads", kinds),),
        plots=(survival_plot("sequence", "Kept so far by depth, at temperature 1", kinds),),
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
    jobs=_jobs,
    find=_find,
)
