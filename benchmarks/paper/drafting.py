"""What heads are worth in the native engine: tokens a pass, greedily and at temperature 1, and real speed.

A model that repeats itself is easy to guess, so each figure has the share of distinct runs of eight bytes beside it.
Every drafted text is held against the plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from head_figures.acceptance import Acceptance, Identity, answer_each, measure_acceptance, no_progress
from head_figures.engines import MAX_NODES, Engines
from head_figures.speed import AUTO, PLAIN, Race, Sides, race_singly
from head_figures.workload import Prompt
from headstart import Engine, SamplingParams
from headstart.errors import HeadstartError
from headstart.measure.report import Spread
from paper.budgets import Budget
from paper.claim import Figures, Job
from paper.models import heads_file

if TYPE_CHECKING:
    from paper.workspace import Workspace

PAYING = "paying"
"""What is measured beside depths in a race: all heads, where the engine finds that they pay."""

# of writing one token plainly or not, on whatever machine; a measurement is short beside the training before it
_TOKEN_S = 1e-3


def drafting_job(
    budget: Budget,
    model: Job,
    corpus: str,
    depths: Sequence[int],
    *,
    heads: Job | None = None,
    weights: str = "stored",
    race: bool = False,
) -> Job:
    """Measure heads that another job has trained; named after that with "drafting-" before.

    Args:
        budget: says how much is written.
        model: the job that trained the model.
        corpus: whose held-out documents are written on.
        depths: guesses ahead, each measured by itself.
        heads: the job that grafted them, if they were not trained with the model.
        weights: of the model, as `headstart.engine.loading.load_parts` takes it.
        race: whether speed is measured as well, and as `PAYING` what the engine's own policy makes of all heads.
    """

    heads = heads or model
    # each for greedy texts and for drawn ones: once to count, and with every turn of a race once plainly as well
    texts = budget.prompts * (2 * len(depths) + (4 * budget.rounds * (len(depths) + 1) if race else 0))
    return Job(
        name=f"drafting-{heads.name}",
        settings={
            "model": model.name,
            "heads": heads.name,
            "weights": weights,
            "corpus": corpus,
            "depths": list(depths),
            "prompts": budget.prompts,
            "prompt_tokens": budget.prompt_tokens,
            "answer_tokens": budget.answer_tokens,
            "rounds_of_race": budget.rounds if race else 0,
        },
        builds_on=(model,) if heads is model else (model, heads),
        timed=race,
        run=lambda workspace: _measure(workspace, model.name, corpus, depths, heads.name, weights, race),
        estimate=lambda stopwatch: texts * budget.answer_tokens * _TOKEN_S,
    )


def _measure(
    workspace: Workspace, model: str, corpus: str, depths: Sequence[int], heads: str, weights: str, race: bool
) -> Figures:
    engines = Engines.load(workspace.model_folder(model), heads_file(workspace, heads), workspace.threads, weights)
    meter = _Meter(engines, _prompts(workspace, corpus), workspace.budget.answer_tokens, workspace.budget.rounds)
    asked: dict[str, int | None] = {str(depth): depth for depth in depths} | ({PAYING: None} if race else {})
    found = {name: meter.accepted(depth) | (meter.raced(depth) if race else {}) for name, depth in asked.items()}
    meter.require_identity(model)
    plain = {"distinct_8gram_share": meter.plain_distinct_share, "num_compared": meter.identity.num_compared}
    return {"by_depth": found, "plain": plain, "prompts": len(meter.prompts)}


def _prompts(workspace: Workspace, corpus: str) -> list[Prompt]:
    from headstart.train.pretrain.acceptance import prompts_of

    budget = workspace.budget
    found = prompts_of(workspace.corpus(corpus).validation, budget.prompts, budget.prompt_tokens)
    return [Prompt(id=f"{corpus} {number}", category=corpus, token_ids=tuple(ids)) for number, ids in enumerate(found)]


class _Meter:
    """Writes the same prompts on with more and fewer guesses.

    Attributes:
        prompts: that are written on.
        identity: what was compared.
    """

    def __init__(self, engines: Engines, prompts: Sequence[Prompt], max_tokens: int, rounds: int) -> None:
        self.prompts, self.identity = list(prompts), Identity()
        self._engines, self._rounds = engines, rounds
        greedy = SamplingParams(max_tokens=max_tokens)
        self._greedy = [greedy] * len(self.prompts)
        self._drawn = [
            SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=seed) for seed in range(len(self.prompts))
        ]
        self._plain = [
            list(zip(self.prompts, answer_each(engines.plain, self.prompts, params, no_progress), strict=True))
            for params in (self._greedy, self._drawn)
        ]
        self._written = Acceptance()
        for prompt, completion in self._plain[0]:
            self._written.add(prompt.category, completion, greedy)

    @property
    def plain_distinct_share(self) -> float | None:
        """Of greedy texts."""
        return self._written.distinct_share()

    def accepted(self, depth: int | None) -> Figures:
        """What is kept of so many guesses ahead, and no more a pass; `None` leaves it to the engine when to draft."""
        greedy, drawn = Acceptance(), Acceptance()
        for references, params, acceptance in zip(
            self._plain, (self._greedy, self._drawn), (greedy, drawn), strict=True
        ):
            with self._engine(depth) as engine:
                measure_acceptance(engine, references, params, acceptance, self.identity, no_progress)
        return {
            "tau": greedy.tau,
            "tau_drawn": drawn.tau,
            "survival": list(greedy.over_all.survival),
            "survival_drawn": list(drawn.over_all.survival),
            "distinct_8gram_share": greedy.distinct_share(),
            "distinct_8gram_share_drawn": drawn.distinct_share(),
        }

    def raced(self, depth: int | None) -> Figures:
        """Speed with so many guesses ahead beside plain speed, of greedy texts and of drawn ones."""
        figures: Figures = {}
        for kind, params in (("", self._greedy), ("_drawn", self._drawn)):
            race = Race()
            with self._engine(depth) as engine:
                sides = Sides(plain=self._engines.plain, auto=engine, identity=self.identity, rounds=self._rounds)
                race_singly(sides, self.prompts, params, race, no_progress)
            figures |= {
                f"speedup{kind}": _median(race.ratio(PLAIN)),
                f"tokens_per_s{kind}": _median(race.tokens_per_s(AUTO)),
                f"plain_tokens_per_s{kind}": _median(race.tokens_per_s(PLAIN)),
            }
        return figures

    def _engine(self, depth: int | None) -> Engine:
        return self._engines.parts.make_engine(
            max_batch=1, share_prefixes=False, policy="measured" if depth is None else "always",
            max_nodes=depth or MAX_NODES, max_depth=depth or MAX_NODES,
        )  # fmt: skip

    def require_identity(self, model: str) -> None:
        """Figures of drafts that changed a text would be worth nothing.

        Raises:
            HeadstartError: one did.
        """
        if self.identity.different:
            raise HeadstartError(
                f"{model}: {len(self.identity.different)} of {self.identity.num_compared} drafted texts differ from "
                f"the plain ones, the first of {self.identity.different[0]}. That is a fault of the engine."
            )


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median
