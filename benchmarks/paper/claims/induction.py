"""Small models learn induction sooner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job
from paper.made_up_tasks import MadeUpTask


def _task(budget: Budget) -> MadeUpTask:
    return MadeUpTask(name="induction", sizes=budget.induction_model)


def _jobs(budget: Budget) -> Iterator[Job]:
    return _task(budget).jobs(budget)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    return _task(budget).finding(budget, figures, remarks=("A guess is right once in 26 times.",))


INDUCTION = Claim(
    name="induction",
    statement="Small models that predict several tokens are better at induction",
    source="Gloeckle et al. 2404.19737, section 4.1: up to 30 M parameters, in stories with names of two tokens",
    method="the second letter of two-letter names in stories, which has to be copied from the first mention; scored by "
    "names that were never trained on",
    jobs=_jobs,
    find=_find,
)
