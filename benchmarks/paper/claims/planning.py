"""Better at tasks that need planning."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from headstart.train.pretrain.model_config import PretrainHeads
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job, Line, Plot, Table
from paper.corpora import TRAINED_OPERATIONS
from paper.drafting_figures import spread
from paper.judgement import Comparison, by_seed
from paper.models import model_job, pretraining
from paper.scoring import scoring_job

_TASKS = ("polynomials", "induction")

_BASE = "next token alone"
_VARIANTS = {
    _BASE: ("n1", PretrainHeads(n=1)),
    "two tokens, equal parameters": ("equal-n2", PretrainHeads(n=2, equal_parameters=True)),
    "four tokens, equal parameters": ("equal-n4", PretrainHeads(n=4, equal_parameters=True)),
    "two tokens, same trunk": ("n2", PretrainHeads(n=2)),
    "four tokens, same trunk": ("n4", PretrainHeads(n=4)),
}


def _model(budget: Budget, task: str, variant: str, seed: int) -> Job:
    name, heads = _VARIANTS[variant]
    return model_job(f"{task}-{name}-seed{seed}", task, pretraining(budget.task_model, heads, seed))


def _score(budget: Budget, task: str, variant: str, seed: int) -> Job:
    return scoring_job(_model(budget, task, variant, seed).name, task)


def _jobs(budget: Budget) -> Iterator[Job]:
    for seed in budget.seeds:
        for task in _TASKS:
            for variant in _VARIANTS:
                yield _model(budget, task, variant, seed)
                yield _score(budget, task, variant, seed)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    accuracies = {
        (task, variant): [figures[_score(budget, task, variant, seed).name]["accuracy"] for seed in budget.seeds]
        for task in _TASKS
        for variant in _VARIANTS
    }
    means = {key: [statistics.fmean(each.values()) for each in found] for key, found in accuracies.items()}
    comparisons = [
        Comparison(f"{task}: {variant} above {_BASE}", by_seed(means[task, variant], means[task, _BASE]), "accuracy")
        for task in _TASKS
        for variant in _VARIANTS
        if variant != _BASE
    ]
    first = figures[_model(budget, "polynomials", _BASE, budget.seeds[0]).name]
    sizes = budget.task_model
    return Finding(
        model=f"bytes, {first['parameters'] / 1e6:.1f} M parameters, {sizes.num_layers} blocks of {sizes.hidden_size}",
        data=f"{budget.task_documents:,} made-up items of each task, {first['tokens'] / 1e6:.2g} MB in {sizes.steps} "
        "steps",
        comparisons=tuple(comparisons),
        tables=tuple(_table(task, {variant: accuracies[task, variant] for variant in _VARIANTS}) for task in _TASKS),
        plots=(_plot({variant: accuracies["polynomials", variant] for variant in _VARIANTS}),),
        remarks=(
            f"Expressions of more than {TRAINED_OPERATIONS} operations were never trained on. A guess is right once "
            "in 343 times for a polynomial, once in 26 for a letter.",
            "The paper compares at equal parameters, which takes blocks off a trunk that has few; the rows with the "
            "same trunk show what that costs. It trained on 26 billion tokens and kept each run's best step by the "
            "test itself; here there is one step, the last.",
            "Answers are greedy, by the native engine, without heads.",
        ),
    )


def _table(task: str, variants: Mapping[str, list[Mapping[str, float]]]) -> Table:
    groups = list(variants[_BASE][0])
    return Table(
        head=(f"{task}, share right", *groups),
        rows=tuple(
            (variant, *(spread([each[group] for each in found], 3) for group in groups))
            for variant, found in variants.items()
        ),
    )


def _plot(variants: Mapping[str, list[Mapping[str, float]]]) -> Plot:
    groups = list(variants[_BASE][0])
    return Plot(
        name="planning-polynomials",
        title="Arithmetic with polynomials",
        x_label="operations of an expression",
        y_label="share right",
        lines=tuple(
            Line(
                label=variant,
                points=tuple(
                    (float(operations), tuple(each[group] for each in found))
                    for operations, group in enumerate(groups, start=1)
                ),
            )
            for variant, found in variants.items()
        ),
    )


PLANNING = Claim(
    name="planning",
    statement="Models that predict several tokens are better at tasks that need planning",
    source="Gloeckle et al. 2404.19737, section 4: induction up to 30 M parameters, polynomials at 30 M and 100 M",
    method="polynomial arithmetic in F7[X]/(X³), and the second letter of two-letter names in stories, which has to be "
    "copied from the first mention; models trained on either alone, scored by items held out",
    jobs=_jobs,
    find=_find,
)
