"""What jobs depend on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paper.budgets import SMALL, SMOKE, Budget
from paper.claims import CLAIMS
from paper.corpora import contents_of, scored_digest
from paper.page import distinct_jobs
from paper.tasks import induction


def all_settings(budget: Budget) -> dict[tuple[str, str], dict[str, Any]]:
    """By claim and job."""
    return {
        (name, job.name): job.all_settings for name, claim in CLAIMS.items() for job in distinct_jobs(claim, budget)
    }


def forget_digests() -> None:
    contents_of.cache_clear()
    scored_digest.cache_clear()


ON_CODE = {"grafted", "sequence", "quality", "loss-weights"}


@pytest.mark.parametrize(
    ("change", "claims", "kinds"),
    [
        ({"prompts": 3}, {*ON_CODE, "speed"}, {"drafting"}),
        ({"answer_tokens": 8}, {*ON_CODE, "speed"}, {"drafting"}),
        ({"rounds": 7}, {"speed"}, {"drafting"}),
        ({"code": ("docs",)}, {*ON_CODE, "speed"}, {"code", "drafting"}),
        ({"prose": ("stdlib",)}, {"speed"}, {"prose", "drafting"}),
        ({"task_items": 9}, {"induction", "polynomials"}, {"scoring"}),
        ({"task_training_items": 5000}, {"induction", "polynomials"}, {"induction", "polynomials", "scoring"}),
        ({"polynomial_ring": (5, 3)}, {"polynomials"}, {"polynomials", "scoring"}),
        ({"induction_rare_one_of": 3}, {"induction"}, {"induction", "scoring"}),
        ({"induction_model": SMALL.text_model}, {"induction"}, {"induction", "scoring"}),
        ({"memory_steps": 2}, {"memory"}, {"memory"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_budget_s_change_makes_the_jobs_that_depend_on_it_others_and_no_more(
    change: dict[str, Any], claims: set[str], kinds: set[str]
) -> None:
    before, now = all_settings(SMOKE), all_settings(replace(SMOKE, **change))
    other = {key for key in before if before[key] != now[key]}
    assert {claim for claim, _ in other} == claims
    assert {job.split("-")[0] for _, job in other} == kinds


def test_a_task_that_is_drawn_otherwise_makes_its_models_and_scores_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = all_settings(SMOKE)
    monkeypatch.setattr(induction, "_SENTENCES", ("{0} rode with {1}.",))
    forget_digests()
    now = all_settings(SMOKE)
    forget_digests()
    assert {key for key in before if before[key] != now[key]} == {key for key in before if key[0] == "induction"}
