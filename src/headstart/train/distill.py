"""Self-distillation: the model writes the text that its heads are trained on.

Documents are written many at a time by the engine and kept in the order of
their numbers. Document i depends on the recipe, the prompts and i alone, so a
text that was interrupted goes on to be, bit for bit, what it would have been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from headstart.checkpoint import Checkpoint, Tokenizer
from headstart.engine import Engine
from headstart.errors import ConfigError, HeadstartError, UnsupportedError
from headstart.train.chat_frame import ChatFrame
from headstart.train.composition import Composition, DistillConfig, compose_document, document_seed
from headstart.train.prompts import PromptSource, prompts_digest
from headstart.train.repetition import distinct_share
from headstart.train.text_shard import Counts
from headstart.train.text_store import Absent, Document, TextHeader, TextSource, TextStore, check_source

__all__ = ["DistillConfig", "DistillReport", "WritingProgress", "text_header", "write_text"]

_MAX_BARREN = 200
"""Prompts in a row without a document after which nothing is to be hoped for."""

_NUM_WAITING = 4
"""Sequences kept waiting in the engine, so that a place in a pass that falls free is taken at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WritingProgress:
    """How far a text is.

    Attributes:
        num_supervised: supervised tokens of all finished documents.
        num_wanted: how many there are to be.
        tokens_per_s: supervised tokens a second since this run began.
        seconds_left: at that rate; `None` before the first document.
    """

    num_supervised: int
    num_wanted: int
    tokens_per_s: float
    seconds_left: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DistillReport:
    """What a text came to.

    Attributes:
        counts: of the whole store.
        distinct_8gram_share: of the whole store, see `distinct_share`; `None` if all answers are shorter.
        tokens_per_s: supervised tokens a second that this run wrote; 0 if there was nothing left to write.
        first_failure: why the first prompt failed that failed in this run, if one did.
    """

    counts: Counts
    distinct_8gram_share: float | None
    tokens_per_s: float
    first_failure: str | None


def text_header(checkpoint: Checkpoint, prompts: PromptSource, config: DistillConfig) -> TextHeader:
    """The header of a store for a text that is to be written so.

    Args:
        checkpoint: the model that writes.
        prompts: what it is asked.
        config: how it writes.
    """
    return TextHeader(
        source=TextSource.of(checkpoint),
        settings=_settings(prompts, config),
        categories=tuple(sorted({prompt.category for prompt in prompts.prompts})),
    )


def fitting_config(config: DistillConfig, checkpoint: Checkpoint, prompts: PromptSource) -> DistillConfig:
    """The same without second turns, if the model's template cannot add a turn and no prompt has several."""
    conversations = [prompt for prompt in prompts.prompts if not prompt.raw]
    if not conversations or any(len(prompt.turns) > 1 for prompt in conversations):
        return config
    frame = ChatFrame(checkpoint.tokenizer())
    if not frame.has_template:
        return config
    try:
        _ = frame.between
    except UnsupportedError:
        return replace(config, follow_up_share=0.0)
    return config


def write_text(
    engine: Engine,
    store: TextStore,
    prompts: PromptSource,
    config: DistillConfig,
    progress: Callable[[WritingProgress], None] | None = None,
    *,
    most_prompts: int | None = None,
) -> DistillReport:
    """Write until the store holds enough; one that holds a part already is continued.

    It may be interrupted at any time, and loses the documents of shards that are not complete, of which there are two
    at most.

    Args:
        engine: for the model that the store belongs to, with no other work. Its
            drafter, batch and threads change the speed, never the text.
        store: made with `text_header` for these prompts and this config.
        prompts: what the model is asked.
        config: how it writes, and how much.
        progress: called after each document.
        most_prompts: that the store answers for, even if it does not hold enough then.

    Returns:
        An account of the whole store.

    Raises:
        CheckpointError: the store is another tokenizer's or template's, or damaged.
        ConfigError: the store was begun with other prompts or settings, or no prompt gets an answer.
        UnsupportedError: the model's template, or the lack of one, cannot serve the prompts.
    """
    frame = _checked_frame(engine, store, prompts, config)
    desk = _Desk(engine, store, prompts, frame, config, progress, math.inf if most_prompts is None else most_prompts)
    desk.write()
    tokens_per_s = desk.tokens_per_s  # first: what follows takes time as well
    return DistillReport(
        counts=store.counts,
        distinct_8gram_share=distinct_share(store.documents()),
        tokens_per_s=tokens_per_s,
        first_failure=None if desk.first_failure is None else str(desk.first_failure),
    )


class _Desk:
    """Where documents are written: those in work, and those that wait for earlier ones to be shelved."""

    def __init__(
        self,
        engine: Engine,
        store: TextStore,
        prompts: PromptSource,
        frame: ChatFrame,
        config: DistillConfig,
        progress: Callable[[WritingProgress], None] | None,
        most_prompts: float,
    ) -> None:
        self._engine = engine
        self._store = store
        self._prompts = prompts
        self._frame = frame
        self._config = config
        self._progress = progress
        self._most_prompts = most_prompts
        self._in_work: dict[int, tuple[int, Composition]] = {}  # by sequence: number and making of a document
        self._finished: dict[int, Document | Absent] = {}  # by number; none of them is in the store
        self._next = store.counts.num_asked
        self._num_barren = 0
        self._started_s = time.perf_counter()
        self._num_found = store.num_supervised
        self._num_finished = 0
        self._num_supervised = store.num_supervised  # of finished documents
        self.first_failure: HeadstartError | None = None

    @property
    def tokens_per_s(self) -> float:
        """Supervised tokens a second since the beginning."""
        return (self._num_supervised - self._num_found) / (time.perf_counter() - self._started_s)

    def write(self) -> None:
        """Write to the end, and leave nothing in the engine."""
        try:
            while self._is_short():
                while self._engine.num_waiting < _NUM_WAITING and self._may_begin():
                    self._begin()
                for event in self._engine.step():
                    if event.finish_reason is not None and event.sequence_id in self._in_work:
                        self._go_on(event.sequence_id)
        finally:
            for sequence_id in self._in_work:
                self._engine.cancel(sequence_id)
                with suppress(Exception):  # what made it fail; the run ends for another reason
                    self._engine.completion(sequence_id)

    def _is_short(self) -> bool:
        """Whether the store is to hold more."""
        counts = self._store.counts
        return counts.num_supervised < self._config.num_tokens and counts.num_asked < self._most_prompts

    def _may_begin(self) -> bool:
        """Whether the next document is to be begun: surely wanted, or likely so and not too far ahead."""
        size, first = self._config.shard_documents, self._store.counts.num_asked
        if self._next >= self._most_prompts:
            return False
        if self._next < first + size:
            return True
        written = self._num_supervised - self._num_found
        mean = (self._config.answer_tokens + written) / (1 + self._num_finished)
        return self._next < first + 2 * size and (
            self._num_supervised + mean * len(self._in_work) < self._config.num_tokens
        )

    def _begin(self) -> None:
        number = self._next
        self._next += 1
        prompt, visit = self._prompts.at(number)
        seed = document_seed(self._config.seed, number)
        self._advance(number, compose_document(prompt, visit, self._frame, self._config, seed), None)

    def _go_on(self, sequence_id: int) -> None:
        number, composition = self._in_work.pop(sequence_id)
        try:
            tokens = self._engine.completion(sequence_id).token_ids
        except HeadstartError as error:
            self._fail(number, error)
        else:
            self._advance(number, composition, tokens)

    def _advance(self, number: int, composition: Composition, tokens: Sequence[int] | None) -> None:
        """Hand a composition what it wished for (`None` at its beginning), and take its next wish."""
        try:
            wish = next(composition) if tokens is None else composition.send(tokens)
            self._in_work[self._engine.submit(wish.prompt, wish.params)] = number, composition
        except StopIteration as ending:
            self._finish(number, Absent.SKIPPED if ending.value is None else ending.value)
        except HeadstartError as error:
            self._fail(number, error)

    def _fail(self, number: int, error: HeadstartError) -> None:
        self.first_failure = self.first_failure or error
        self._finish(number, Absent.FAILED)

    def _finish(self, number: int, outcome: Document | Absent) -> None:
        self._finished[number] = outcome
        self._num_finished += 1
        self._shelve()  # before anyone is told, who may end the run
        if isinstance(outcome, Absent):
            self._num_barren += 1
            if self._num_barren >= _MAX_BARREN:
                self._give_up()
            return
        self._num_barren = 0
        self._num_supervised += int(outcome.supervised.sum())
        if self._progress is not None:
            self._progress(self._account())

    def _shelve(self) -> None:
        """Put shards into the store that are complete, as long as more is wanted."""
        while self._is_short():
            first = self._store.counts.num_asked
            numbers = range(first, first + self._config.shard_documents)
            if not all(number in self._finished for number in numbers):
                return
            self._store.append([self._finished.pop(number) for number in numbers])

    def _account(self) -> WritingProgress:
        rate = self.tokens_per_s
        missing = max(0, self._config.num_tokens - self._num_supervised)
        return WritingProgress(
            num_supervised=self._num_supervised,
            num_wanted=self._config.num_tokens,
            tokens_per_s=rate,
            seconds_left=missing / rate if rate > 0 else None,
        )

    def _give_up(self) -> None:
        reason = self.first_failure or "all answers were empty, or the prompts longer than document_tokens."
        raise ConfigError(
            f"{self._num_barren} prompts in a row, up to number {self._next - 1}, gave nothing to learn from: {reason} "
            "Check the prompts against the model's context and chat template."
        )


def _settings(prompts: PromptSource, config: DistillConfig) -> dict[str, object]:
    return {**config.recipe(), "prompts": prompts_digest(prompts)}


def _checked_frame(engine: Engine, store: TextStore, prompts: PromptSource, config: DistillConfig) -> ChatFrame:
    """The model's frame, after all that can be wrong with engine, store, prompts and config was looked at."""
    tokenizer = engine.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise UnsupportedError(
            f"The engine has a {type(tokenizer).__name__}; to write training text it must have a model file's own "
            "tokenizer. Load it with Engine.load."
        )
    found = store.header.source
    digest, template = tokenizer.digest(), tokenizer.chat_template_digest()
    check_source(store.path, found, TextSource(model=found.model, tokenizer=digest, chat_template=template))
    for name, value in _settings(prompts, config).items():
        if store.header.settings.get(name) != value:
            raise ConfigError(
                f"{name} = {value!r}, but {store.path} was begun with {store.header.settings.get(name)!r}. Go on with "
                "that, or begin another store."
            )
    frame = ChatFrame(tokenizer)
    _check_template(frame, prompts, config)
    return frame


def _check_template(frame: ChatFrame, prompts: PromptSource, config: DistillConfig) -> None:
    """Ask for every part of the template that the prompts will need, so that what is amiss shows at once."""
    conversations = [prompt for prompt in prompts.prompts if not prompt.raw]
    if conversations and not frame.has_template:
        raise UnsupportedError(
            f"{len(conversations)} of {len(prompts.prompts)} prompts are turns of a conversation, but the model has no "
            'chat template; it can only go on with plain texts. Give lines such as {"prompt": "...", "raw": true}.'
        )
    if any(prompt.opening for prompt in conversations):
        _ = frame.head
    if any(len(prompt.turns) > 1 for prompt in conversations) or (conversations and config.follow_up_share > 0):
        _ = frame.between
