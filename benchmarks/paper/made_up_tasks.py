"""A made-up task learnt with several tokens ahead and without: what two claims compare in one way."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headstart.train.pretrain.model_config import PretrainHeads
from paper.budgets import Budget, Sizes
from paper.claim import Figures, Finding, Job, Plot, Table
from paper.drafting_figures import spread
from paper.judgement import Comparison, by_seed
from paper.models import model_job, pretraining
from paper.scoring import scoring_job

_BASE = "next token alone"
_FOUR = "four tokens, equal parameters"
# the trunk that is left to the four
_SHALLOW = "next token alone, three blocks fewer"
_FEWER_BLOCKS = 3

_VARIANTS = {
    _BASE: ("n1", PretrainHeads(n=1)),
    _SHALLOW: ("shallow-n1", PretrainHeads(n=1)),
    "two tokens, equal parameters": ("equal-n2", PretrainHeads(n=2, equal_parameters=True)),
    _FOUR: ("equal-n4", PretrainHeads(n=1 + _FEWER_BLOCKS, equal_parameters=True)),
    "two tokens, same trunk": ("n2", PretrainHeads(n=2)),
    "four tokens, same trunk": ("n4", PretrainHeads(n=4)),
}

REMARKS = (
    "The paper compares at equal parameters, which takes blocks off a trunk that has few. A shallower trunk may learn "
    "a task sooner or not at all, whatever it predicts: the row with three blocks fewer has the trunk of the four "
    "tokens at equal parameters, and rows with the same trunk have all blocks. The paper kept each run's best step by "
    "the test itself; here there is one step, the last.",
    "Answers are greedy, by the native engine, without heads.",
)

Shares = Mapping[str, Sequence[Mapping[str, float]]]
"""Shares of right answers by variant, seed and group of items."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeUpTask:
    """A task, and what learns it.

    Attributes:
        name: of its text.
        sizes: of the models.
    """

    name: str
    sizes: Sizes

    def jobs(self, budget: Budget) -> Iterator[Job]:
        """All that is trained and scored."""
        for seed in budget.seeds:
            for variant in _VARIANTS:
                yield self._model(budget, variant, seed)
                yield self._score(budget, variant, seed)

    def shares(self, budget: Budget, figures: Mapping[str, Figures]) -> Shares:
        """What was answered rightly."""
        return {
            variant: [figures[self._score(budget, variant, seed).name]["accuracy"] for seed in budget.seeds]
            for variant in _VARIANTS
        }

    def finding(
        self,
        budget: Budget,
        figures: Mapping[str, Figures],
        *,
        unskilled: tuple[str, Mapping[str, float]],
        unjudged: tuple[str, ...] = (),
        plots: tuple[Plot, ...] = (),
        remarks: tuple[str, ...],
    ) -> Finding:
        """What it came to.

        Args:
            budget: what was spent.
            figures: of all jobs.
            unskilled: a way to answer without what is to be learnt, and how much of each group it gets right.
            unjudged: groups that say nothing of the claim; they stand in the table alone.
            plots: of the shares.
            remarks: about the task, before those that hold for every task.
        """
        shares = self.shares(budget, figures)
        means = {
            variant: [
                statistics.fmean(share for group, share in each.items() if group not in unjudged) for each in by_seeds
            ]
            for variant, by_seeds in shares.items()
        }
        first = figures[self._model(budget, _BASE, budget.seeds[0]).name]
        return Finding(
            model=f"bytes, {first['parameters'] / 1e6:.1f} M parameters, {self.sizes.num_layers} blocks of "
            f"{self.sizes.hidden_size}",
            data=f"{budget.task_training_items:,} made-up items, {first['tokens'] / 1e6:.2g} MB in "
            f"{self.sizes.steps} steps",
            comparisons=tuple(
                Comparison(f"{better} above {worse}", by_seed(means[better], means[worse]), "accuracy")
                for better, worse in (
                    *((variant, _BASE) for variant in _VARIANTS if variant not in (_BASE, _SHALLOW)),
                    (_FOUR, _SHALLOW),
                )
            ),
            tables=(_table(shares, *unskilled),),
            plots=plots,
            remarks=(*remarks, *REMARKS),
        )

    def _model(self, budget: Budget, variant: str, seed: int) -> Job:
        name, heads = _VARIANTS[variant]
        blocks = self.sizes.num_layers - (_FEWER_BLOCKS if variant == _SHALLOW else 0)
        config = pretraining(self.sizes, heads, seed, num_layers=blocks)
        return model_job(budget, f"{self.name}-{name}-seed{seed}", self.name, config)

    def _score(self, budget: Budget, variant: str, seed: int) -> Job:
        return scoring_job(budget, self._model(budget, variant, seed), self.name)


def _table(shares: Shares, way: str, unskilled: Mapping[str, float]) -> Table:
    groups = list(shares[_BASE][0])
    return Table(
        head=("share right", *groups),
        rows=(
            (f"({way})", *(f"{unskilled[group]:.3f}" for group in groups)),
            *(
                (variant, *(spread([each[group] for each in by_seeds], 3) for group in groups))
                for variant, by_seeds in shares.items()
            ),
        ),
    )
