"""Small models learn induction sooner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job
from paper.corpora import scored_items
from paper.made_up_tasks import MadeUpTask
from paper.tasks.induction import FIRST_LETTERS, NAMES, SECOND_LETTERS, share_without_reading_the_letter
from paper.tasks.item import mean_by_group


def _task(budget: Budget) -> MadeUpTask:
    return MadeUpTask(name="induction", sizes=budget.induction_model)


def _jobs(budget: Budget) -> Iterator[Job]:
    return _task(budget).jobs(budget)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    rare = budget.induction_rare_one_of
    return _task(budget).finding(
        budget,
        figures,
        unskilled=(
            "any name of the story, its first letter unread",
            mean_by_group(scored_items("induction", budget), share_without_reading_the_letter),
        ),
        remarks=(
            f"A story has {NAMES} names. First letters are drawn of {len(FIRST_LETTERS)} and second ones of "
            f"{len(SECOND_LETTERS)}, anew for each story, all as likely, to train on and to be "
            "scored by: which pairs of letters there are is nothing to be known by heart. Models learn to copy some "
            "second letter before they learn whose; the first row shows what that is worth. Names of two letters are "
            f"in {'all stories' if rare == 1 else f'one of {rare} stories'} to train on.",
        ),
    )


INDUCTION = Claim(
    name="induction",
    statement="Small models that predict several tokens are better at induction",
    source="Gloeckle et al. 2404.19737, section 4.1: up to 30 M parameters, in stories with names of two tokens",
    method="the second letter of two-letter names, three in a story, made up for each; it has to be copied from where "
    "the name was first mentioned",
    jobs=_jobs,
    find=_find,
)
