"""One run: what is measured, on how much, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import Progress

from head_figures.acceptance import (
    Acceptance,
    Advance,
    Answered,
    answer_all_turns,
    answer_each,
    measure_acceptance,
)
from head_figures.engines import BATCH, Engines
from head_figures.report import Figures
from head_figures.speed import Sides, measure_draft_cost, race_singly, race_together
from head_figures.workload import CREATIVE_CATEGORIES, Prompt, Question, make_prompt
from headstart import Engine, SamplingParams
from headstart.errors import ConfigError
from headstart.measure.workload import take_evenly
from peer_workers.pairing import Side
from prompts import CREATIVE

ROUNDS = 3  # turns of each side with single texts
ROUNDS_TOGETHER = 9  # and with many at once, where the difference is small
SPEED_PROMPTS = 20
COST_PROMPTS = 8
SAMPLED_EVERY = 2  # one prompt of so many is sampled as well


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What is measured, and how much of it.

    Attributes:
        model: GGUF file.
        heads: heads file; `None` for those that belong to the model.
        data: folder with the questions.
        limit: questions of each file at most.
        max_tokens: of an answer.
        temperature: of the texts that are sampled.
        threads: CPU threads of each engine.
        llama_cpp: Python of the environment with llama-cpp-python.
        only_acceptance: leave out all that is timed.

    Raises:
        ConfigError: a value is out of its range.
    """

    model: Path
    heads: Path | None
    data: Path
    limit: int | None
    max_tokens: int
    temperature: float
    threads: int | None
    llama_cpp: Path | None
    only_acceptance: bool = False

    def __post_init__(self) -> None:
        for name in ("limit", "max_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} {value}: it must be at least 1.")
        if self.temperature <= 0:
            raise ConfigError(
                f"--temperature {self.temperature}: it must be above 0; it is that of the sampled texts, and greedy "
                "ones are measured anyway."
            )
        if self.only_acceptance and self.llama_cpp is not None:
            raise ConfigError("--llama-cpp has no effect with --only-acceptance, which times nothing: leave one out.")


class Measurement:
    """One run of everything. What was measured so far stands in `figures` at any time.

    Args:
        settings: what is to be measured.
        engines: loaded.
        questions: to be asked.
        peer: llama.cpp, loaded and paused, if it is to be compared with.
        progress: shows how far it is.
    """

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        questions: list[Question],
        peer: Side | None,
        progress: Progress,
    ) -> None:
        self.figures = Figures()
        self._settings = settings
        self._engines = engines
        self._questions = questions
        self._peer = peer
        self._progress = progress
        self._greedy = SamplingParams(max_tokens=settings.max_tokens)

    def run(self) -> None:
        """Measure everything, what is timed first: the machine is as quiet then as it was found."""
        if not self._settings.only_acceptance:
            self._single_texts()
            self._creative_texts()
            self._texts_together()
            self._draft_cost()
        prompts = self._acceptance()
        self._sampled_acceptance(prompts[::SAMPLED_EVERY])

    def _single_texts(self) -> None:
        prompts = self._first_turns(take_evenly(self._questions, SPEED_PROMPTS))
        sides = replace(self._sides(), peer=self._peer)
        self.figures.auto = sides.auto.statistics.acceptance
        with self._phase("auto against plain", ROUNDS * len(prompts)) as advance:
            race_singly(sides, prompts, [self._greedy] * len(prompts), self.figures.speed, advance)

    def _creative_texts(self) -> None:
        questions = [Question(id=name, category="creative", turns=(text,)) for name, text in CREATIVE.items()]
        questions += [question for question in self._questions if question.category in CREATIVE_CATEGORIES]
        prompts = self._first_turns(questions)
        with self._phase("creative texts", ROUNDS * len(prompts)) as advance:
            race_singly(self._sides(), prompts, [self._greedy] * len(prompts), self.figures.creative, advance)

    def _texts_together(self) -> None:
        prompts = self._first_turns(take_evenly(self._questions, BATCH))
        if len(prompts) < BATCH:
            return
        sides = replace(self._sides(), rounds=ROUNDS_TOGETHER)
        with self._phase(f"{BATCH} at once", ROUNDS_TOGETHER) as advance:
            race_together(sides, prompts, self._greedy, self.figures.batch, advance)

    def _draft_cost(self) -> None:
        prompts = self._first_turns(take_evenly(self._questions, COST_PROMPTS))
        with self._phase("cost of drafting", len(prompts)) as advance:
            heads = self._watched(self._engines.with_heads())
            measure_draft_cost(prompts, self._engines.plain, heads, self._greedy, self.figures.cost, advance)

    def _acceptance(self) -> list[Prompt]:
        """Greedy; returns the prompts, second turns of conversations among them."""
        num_texts = sum(len(question.turns) for question in self._questions)
        with self._phase("plain texts", num_texts) as advance:
            references = answer_all_turns(self._engines.plain, self._questions, self._greedy, advance)
        self._accept("accepted, greedy", references, [self._greedy] * num_texts, self.figures.greedy)
        return [prompt for prompt, _ in references]

    def _sampled_acceptance(self, prompts: list[Prompt]) -> None:
        params = [
            SamplingParams(max_tokens=self._settings.max_tokens, temperature=self._settings.temperature, seed=seed)
            for seed in range(len(prompts))
        ]
        with self._phase("plain texts, sampled", len(prompts)) as advance:
            completions = answer_each(self._engines.plain, prompts, params, advance)
        references = list(zip(prompts, completions, strict=True))
        self._accept("accepted, sampled", references, params, self.figures.sampled)

    def _accept(
        self, name: str, references: list[Answered], params: list[SamplingParams], acceptance: Acceptance
    ) -> None:
        with self._phase(name, len(references)) as advance:
            heads = self._watched(self._engines.with_heads())
            measure_acceptance(heads, references, params, acceptance, self.figures.identity, advance)

    def _first_turns(self, questions: Sequence[Question]) -> list[Prompt]:
        return [make_prompt(self._engines.plain.tokenizer, question) for question in questions]

    def _sides(self) -> Sides:
        return Sides(
            plain=self._engines.plain,
            auto=self._watched(self._engines.automatic()),
            identity=self.figures.identity,
            rounds=ROUNDS,
        )

    def _watched(self, engine: Engine) -> Engine:
        self.figures.drafting.append(engine)
        return engine

    @contextmanager
    def _phase(self, name: str, num_steps: int) -> Iterator[Advance]:
        task = self._progress.add_task(name, total=num_steps)
        yield lambda: self._progress.advance(task)
