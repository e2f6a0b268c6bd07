"""Jobs that score a trained model on a made-up task: greedy answers of the native engine, right or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from headstart import Engine, SamplingParams
from paper.budgets import Budget
from paper.claim import Figures, Job
from paper.corpora import scored_digest, scored_items
from paper.tasks.item import Item

if TYPE_CHECKING:
    from paper.workspace import Workspace

# of answering an item, which is short beside the training before it
_ITEM_S = 0.01


def scoring_job(budget: Budget, model: Job, task: str) -> Job:
    """Score the next-token model that another job has trained; named after that with "scoring-" before."""
    return Job(
        name=f"scoring-{model.name}",
        settings={"model": model.name, "task": task, "items": scored_digest(task, budget)},
        builds_on=(model,),
        run=lambda workspace: _score(workspace, model.name, task),
        estimate=lambda stopwatch: len(scored_items(task, budget)) * _ITEM_S,
    )


def _score(workspace: Workspace, model: str, task: str) -> Figures:
    items = scored_items(task, workspace.budget)
    folder = workspace.model_folder(model)
    with Engine.load(folder, draft="none", threads=workspace.threads, share_prefixes=False) as engine:
        right = [answer == item.answer for item, answer in zip(items, answers(engine, items), strict=True)]
    asked = Counter(item.group for item in items)
    known = Counter(item.group for item, is_right in zip(items, right, strict=True) if is_right)
    return {
        "accuracy": {group: known[group] / count for group, count in asked.items()},
        "asked": dict(asked),
    }


def answers(engine: Engine, items: Iterable[Item]) -> list[str]:
    """What the model goes on with after each item's prompt, as many bytes as the answer has."""
    written: list[str] = []
    for length, group in groupby(items, key=lambda item: len(item.answer)):
        prompts: Sequence[str] = [item.prompt for item in group]
        params = SamplingParams(max_tokens=length, ignore_eos=True)
        written += [completion.text for completion in engine.generate_many(prompts, params)]
    return written
