"""Better at arithmetic that takes several steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job, Line, Plot
from paper.corpora import TRAINED_OPERATIONS, scored_items
from paper.made_up_tasks import MadeUpTask, Shares
from paper.tasks.item import Item, mean_by_group


def _task(budget: Budget) -> MadeUpTask:
    return MadeUpTask(name="polynomials", sizes=budget.polynomial_model)


def _jobs(budget: Budget) -> Iterator[Job]:
    return _task(budget).jobs(budget)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    task = _task(budget)
    modulus, terms = budget.polynomial_ring
    return task.finding(
        budget,
        figures,
        unskilled=("the commonest value, always", _commonest(scored_items("polynomials", budget))),
        # the claim is of several steps
        unjudged=("1 operation",),
        plots=(_plot(task.shares(budget, figures)),),
        remarks=(
            f"Coefficients are of F{modulus}, and there are {terms} of them, so there are {modulus**terms} values, the "
            f"commonest of which is zero. Expressions of more than {TRAINED_OPERATIONS} operations were never trained "
            "on, nor was a scored one with the sides of a sum or product exchanged. Comparisons are of two operations "
            "and more. The paper trained on 26 billion tokens.",
        ),
    )


def _commonest(items: Sequence[Item]) -> dict[str, float]:
    """The share of each group's items that its commonest value is right of."""
    values = Counter((item.group, item.answer) for item in items)
    commonest = {group: value for (group, value), _ in reversed(values.most_common())}
    return mean_by_group(items, lambda item: item.answer == commonest[item.group])


def _plot(shares: Shares) -> Plot:
    return Plot(
        name="polynomials",
        title="Arithmetic with polynomials",
        x_label="operations of an expression",
        y_label="share right",
        lines=tuple(
            Line(
                label=variant,
                points=tuple(
                    (float(operations), tuple(each[group] for each in by_seeds))
                    for operations, group in enumerate(by_seeds[0], start=1)
                ),
            )
            for variant, by_seeds in shares.items()
        ),
    )


POLYNOMIALS = Claim(
    name="polynomials",
    statement="Models that predict several tokens are better at arithmetic of several steps",
    source="Gloeckle et al. 2404.19737, section 4.2: 30 M and 100 M parameters, F7[X]/(X⁵)",
    method="arithmetic with polynomials in a smaller ring, scored by expressions that were never trained on",
    jobs=_jobs,
    find=_find,
)
