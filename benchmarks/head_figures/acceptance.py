"""How many guesses of the heads are right, and whether the text stays what it is without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from head_figures.engines import complete
from head_figures.workload import GROUPS, Prompt, Question, make_prompt
from headstart import Engine, SamplingParams
from headstart.decoding.statistics import AcceptanceStatistics
from headstart.engine import token_hash
from headstart.records import Completion
from headstart.train.repetition import distinct_share
from headstart.train.text_shard import Document

Advance = Callable[[], object]
"""Called as each text is done."""


def no_progress() -> None:
    """Tells nobody."""


Answered = tuple[Prompt, Completion]

REPETITION_LENGTH = 8


@dataclass(slots=True)
class Identity:
    """Whether drafted texts are the plain ones, by hashes of their token ids.

    Attributes:
        num_compared: texts.
        different: names of those that differ.
    """

    num_compared: int = 0
    different: list[str] = field(default_factory=list)

    def compare(self, name: str, plain: Sequence[int], drafted: Sequence[int]) -> None:
        """Compare two texts of one prompt."""
        self.num_compared += 1
        if token_hash(plain) != token_hash(drafted):
            self.different.append(name)

    @property
    def holds(self) -> bool | None:
        """Whether all are the same; `None` if none were compared."""
        return not self.different if self.num_compared else None


class Acceptance:
    """What was accepted, over all texts so far and by category."""

    def __init__(self) -> None:
        self._by_category: dict[str, AcceptanceStatistics] = defaultdict(AcceptanceStatistics)
        self._answers: list[Document] = []

    def add(self, category: str, completion: Completion, params: SamplingParams) -> None:
        """Take in a text."""
        self._by_category[category].merge(AcceptanceStatistics.of(completion))
        tokens = np.asarray(completion.token_ids, np.int32)
        self._answers.append(
            Document(
                tokens=tokens, supervised=np.ones(tokens.shape, np.bool_), temperature=params.temperature,
                seed=completion.seed, category=category,
            )
        )  # fmt: skip

    @property
    def over_all(self) -> AcceptanceStatistics:
        """The counts of all categories together."""
        return AcceptanceStatistics.total(self._by_category.values())

    @property
    def tau(self) -> float | None:
        """Mean acceptance length over all texts."""
        return _tau(self.over_all)

    def tau_by_category(self) -> dict[str, float | None]:
        """Mean acceptance length of each category, of each group of `GROUPS`, and of all."""
        groups = {
            group: AcceptanceStatistics.total(
                counts for category, counts in self._by_category.items() if category in members
            )
            for group, members in GROUPS.items()
        }
        return {name: _tau(counts) for name, counts in {**self._by_category, **groups, "all": self.over_all}.items()}

    def by_category(self) -> dict[str, dict[str, Any]]:
        """Counts and acceptance by depth of each category."""
        return {
            category: {
                "rounds": counts.rounds,
                "tokens": counts.tokens,
                "mean_acceptance_length": counts.mean_acceptance_length,
                "conditional_acceptance": counts.conditional_acceptance,
                "survival": counts.survival,
            }
            for category, counts in self._by_category.items()
        }

    def share_of_rounds_by_length(self) -> dict[str, float]:
        """Shares of the rounds that kept 0, 1, ... guesses, by their length: kept guesses and the trunk's own token."""
        counts = self.over_all
        if counts.rounds == 0:
            return {}
        at_least = [counts.rounds, *counts.accepted_by_depth, 0]
        return {
            str(length): (at_least[length - 1] - at_least[length]) / counts.rounds for length in range(1, len(at_least))
        }

    def distinct_share(self) -> float | None:
        """Share of distinct runs of eight tokens in the texts: heads look good on a text that repeats itself."""
        return distinct_share(self._answers, REPETITION_LENGTH)


def answer_each(
    engine: Engine, prompts: Sequence[Prompt], params: Sequence[SamplingParams], advance: Advance
) -> list[Completion]:
    """The answers, in the order of the prompts."""
    answers: dict[int, Completion] = {}
    for index, completion in complete(engine, prompts, params):
        answers[index] = completion
        advance()
    return [answers[index] for index in range(len(prompts))]


def answer_all_turns(
    engine: Engine, questions: Sequence[Question], params: SamplingParams, advance: Advance
) -> list[Answered]:
    """All turns of all questions, each with the model's own answers to those before; first turns come first."""
    answered: list[Answered] = []
    answers: list[tuple[str, ...]] = [()] * len(questions)
    while asked := [index for index, question in enumerate(questions) if len(answers[index]) < len(question.turns)]:
        prompts = [make_prompt(engine.tokenizer, questions[index], answers[index]) for index in asked]
        completions = answer_each(engine, prompts, [params] * len(prompts), advance)
        for index, prompt, completion in zip(asked, prompts, completions, strict=True):
            answers[index] += (completion.text,)
            answered.append((prompt, completion))
    return answered


def name_of_text(prompt: Prompt, params: SamplingParams) -> str:
    """What a text is called where it differs."""
    return prompt.id if params.temperature == 0.0 else f"{prompt.id}, sampled"


def measure_acceptance(
    engine: Engine,
    references: Sequence[Answered],
    params: Sequence[SamplingParams],
    acceptance: Acceptance,
    identity: Identity,
    advance: Advance,
) -> None:
    """Answer prompts with drafts, and hold the texts against the plain ones.

    Args:
        engine: drafts.
        references: prompts, and what was written plainly with the same parameters.
        params: one for each.
        acceptance: takes in what was accepted.
        identity: takes in what was compared.
        advance: called for each text.
    """
    prompts = [prompt for prompt, _ in references]
    for index, completion in complete(engine, prompts, params):
        prompt, plain = references[index]
        acceptance.add(prompt.category, completion, params[index])
        identity.compare(name_of_text(prompt, params[index]), plain.token_ids, completion.token_ids)
        advance()


def _tau(counts: AcceptanceStatistics) -> float | None:
    return counts.mean_acceptance_length if counts.rounds else None
