"""Heads trained with the model draft better than heads grafted afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paper import drafting_figures as figures_of
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job
from paper.drafting_figures import acceptance_table
from paper.judgement import Comparison, by_seed
from paper.variants import amount_of, drafted, grafted, next_token, size_of, with_heads

_KINDS = ("parallel", "sequential")


def _jobs(budget: Budget) -> Iterator[Job]:
    for seed in budget.seeds:
        alone = next_token(budget, seed)
        yield alone
        for kind in _KINDS:
            heads, together = grafted(budget, kind, seed), with_heads(budget, kind, seed)
            yield from (heads, together, drafted(alone, heads), drafted(together))


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    kinds: dict[str, list[Figures]] = {}
    for kind in _KINDS:
        for seed in budget.seeds:
            together, alone = with_heads(budget, kind, seed), next_token(budget, seed)
            kinds.setdefault(f"{kind}, trained with the model", []).append(figures[drafted(together).name])
            after = drafted(alone, grafted(budget, kind, seed))
            kinds.setdefault(f"{kind}, grafted afterwards", []).append(figures[after.name])
    comparisons = [
        Comparison(
            f"{kind} heads, tokens a pass {how}: trained with the model above grafted",
            by_seed(
                figures_of.over_seeds(kinds[f"{kind}, trained with the model"], name),
                figures_of.over_seeds(kinds[f"{kind}, grafted afterwards"], name),
            ),
        )
        for kind in _KINDS
        for how, name in (("greedily", "tau"), ("at temperature 1", "tau_drawn"))
    ]
    first = figures[with_heads(budget, "parallel", budget.seeds[0]).name]
    return Finding(
        model=size_of(budget, first["parameters"]) + " with its heads",
        data=amount_of(budget, "standard library"),
        comparisons=tuple(comparisons),
        tables=(acceptance_table("heads", kinds),),
        remarks=(
            "As many tokens go through grafted heads as through those trained with the model, but they are the model's "
            "own text, a quarter as much four times, with its distribution as the target; the trunk under them has "
            "learnt nothing but the next token, for as many steps. Its training comes on top, so the two together "
            "take longer than training both at once.",
            "Parallel heads have the same shape either way. In sequence, modules trained with the model have weights "
            "of their own for each depth, the grafted one is unrolled.",
        ),
    )


GRAFTED = Claim(
    name="grafted",
    statement="Heads trained with the model draft better than heads grafted on it afterwards",
    source="Gloeckle et al. 2404.19737, section 3.2",
    method="four-token models against the next-token model of the same trunk, steps and seed with heads of "
    "`headstart graft`; held-out code written on by the native engine, at most three guesses a pass",
    jobs=_jobs,
    find=_find,
)
