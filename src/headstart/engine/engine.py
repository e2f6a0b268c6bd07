"""The engine: many sequences, one trunk, one pass a step.

`Engine.step` is the whole story: plan, draft, run, decide, settle. Everything
else here lets requests in and their results out. An engine is used by one
thread at a time.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import Drafter
from headstart.engine.cache import PageAccounts, choose_num_pages
from headstart.engine.cache_claim import check_claim, claim_cache
from headstart.engine.draft_config import DraftConfig, Policy
from headstart.engine.drafting import Drafting, as_drafters
from headstart.engine.outbox import Outbox
from headstart.engine.passes import Pass, build_pass
from headstart.engine.requests import Limits, params_for_each, read_request
from headstart.engine.scheduler import Round, Scheduler, SchedulerConfig
from headstart.engine.sequence import Sequence as SequenceState
from headstart.engine.statistics import EngineStatistics
from headstart.engine.text import Tokenizer
from headstart.engine.timing import measure_cost_curve
from headstart.engine.verification import Decision, make_verification
from headstart.errors import CapacityError, ConfigError
from headstart.records import Completion, Event, FinishReason, SamplingParams
from headstart.runtime.protocol import PAGE_TOKENS, Trunk

MAX_ROWS = 512
"""Tokens of one pass, drafted ones included, unless an engine is told otherwise."""

_GREEDY = SamplingParams()


class Engine:
    """Writes on from prompts, drafting where that pays, exactly as plain decoding would.

    Example:
        >>> with Engine.load("model.gguf") as engine:
        ...     print(engine.generate("Once upon a time").text)
    """

    def __init__(
        self,
        trunk: Trunk,
        tokenizer: Tokenizer,
        *,
        drafter: Drafter | Sequence[Drafter] | None = None,
        policy: Policy = "measured",
        max_nodes: int = 16,
        max_depth: int = 16,
        min_confidence: float = 0.0,
        verification: str = "choice",
        cost_curve: CostCurve | None = None,
        max_batch: int = 16,
        max_rows: int = MAX_ROWS,
        prefill_chunk: int = 256,
        cache_tokens: int | None = None,
        share_prefixes: bool = True,
    ) -> None:
        """Allocate the cache and, if need be, measure what passes cost.

        Args:
            trunk: the model that decides; its cache is this engine's until another one is made with it.
            tokenizer: for texts.
            drafter: who guesses; several are asked in turn, so cheap ones come first; `None` decodes plainly.
            policy: "measured" drafts where measured cost and acceptance say that it pays, "always" wherever it can.
            max_nodes, max_depth: guesses at most for a sequence and pass, and how far ahead.
            min_confidence: probability, by the drafter's own count, below which a guess is not followed by others.
            verification: "choice" writes what plain decoding would; for "rejection:..." see `make_verification`.
            cost_curve: of the trunk; measured here (some ten passes) if it is needed and not given.
            max_batch: sequences that run at the same time; more of them wait.
            max_rows: tokens of one pass, drafted ones included; at least `max_batch`.
            prefill_chunk: tokens of one pass that may go to prompts.
            cache_tokens: tokens cached over all sequences; by default `max_batch` full contexts, at most 512 MiB.
            share_prefixes: whether prompts that begin alike share cache pages.

        Raises:
            ConfigError: a setting is out of its range.
            CapacityError: the cache does not fit into memory.
        """
        draft_config = DraftConfig(
            policy=policy, max_nodes=max_nodes, max_depth=max_depth, min_confidence=min_confidence
        )
        scheduler_config = SchedulerConfig(max_batch=max_batch, max_rows=max_rows, prefill_chunk=prefill_chunk)
        num_pages = choose_num_pages(cache_tokens, trunk.page_bytes(), max_batch * trunk.max_context)
        drafters = as_drafters(drafter)
        self._verification = make_verification(verification, trunk, drafters)
        # last of what can be refused: an engine that was made before loses the cache to this one
        self._claim = claim_cache(trunk, num_pages)
        if cost_curve is None and drafters and policy == "measured":
            cost_curve = measure_cost_curve(trunk, num_pages, max_rows)
        self._trunk = trunk
        self._tokenizer = tokenizer
        self._limits = Limits(trunk.vocab_size, trunk.max_context, num_pages * PAGE_TOKENS)
        self._accounts = PageAccounts(num_pages, share_prefixes=share_prefixes)
        self._scheduler = Scheduler(self._accounts, scheduler_config)
        whole_trees = self._verification.needs_whole_trees
        if whole_trees and min_confidence:
            raise ConfigError(
                f"min_confidence = {min_confidence} has no effect with verification {verification!r}, which is only "
                "exact if no guess is chosen by what it is. Leave one out."
            )
        self._drafting = Drafting(drafters, draft_config, trunk.vocab_size, cost_curve, give_whole_trees=whole_trees)
        self._statistics = EngineStatistics()
        self._ids = itertools.count()
        self._living: dict[int, SequenceState] = {}
        self._outbox = Outbox()
        self._has_lent = False

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        draft: str = "auto",
        threads: int | None = None,
        weights: str = "stored",
        **settings: Any,
    ) -> Engine:
        """An engine for a model file, run by the native CPU runtime.

        Args:
            source: what `headstart.checkpoint.open_checkpoint` takes.
            draft: one of `headstart.engine.loading.DRAFT_KINDS`, which says what they are.
            threads: CPU threads; by default as many as the process may use at once.
            weights: "stored" as in the file, or a `headstart.runtime.native.WeightFormat`.
            **settings: those of `Engine`.

        Raises:
            CheckpointError, UnsupportedError: a file is missing or damaged, or this build cannot run it.
            ConfigError: an unknown `draft` or `weights`.
        """
        from headstart.engine.loading import load_parts  # late: see there

        parts = load_parts(source, draft=draft, threads=threads, weights=weights)
        return cls(parts.trunk, parts.tokenizer, drafter=parts.make_drafters(**settings) or None, **settings)

    def step(self) -> list[Event]:
        """Run one pass, and return all news that were not fetched yet.

        Raises:
            Exception: what the trunk raised. Nothing became final, and the next
                step tries again.
        """
        self._advance()
        return self._outbox.take()

    def _advance(self) -> None:
        check_claim(self._trunk, self._claim)
        started = time.perf_counter()
        rounds = self._scheduler.plan(started)
        if not rounds:
            return
        for round_, tree in self._drafting.propose(rounds, self._scheduler.config.max_rows):
            self._scheduler.reserve_tree(round_, tree)
        drafted = time.perf_counter()
        passed = build_pass(rounds)
        decisions = self._run(passed)
        now = time.perf_counter()
        for round_, decision in zip(rounds, decisions, strict=True):
            try:
                self._settle(round_, decision, now)
            except Exception as error:
                self._fail(round_.sequence, error)
        ended = time.perf_counter()
        self._statistics.step_s += ended - started
        if len(passed.rows.wanted) == len(passed.rows.tokens):
            # A prompt's inner rows want no logits and cost less; only passes without any say what a row costs.
            # The engine's own work counts, since it grows with the rows as well.
            self._drafting.observe_pass(len(passed.rows.tokens), ended - drafted)

    def _run(self, passed: Pass) -> list[Decision]:
        """Run the rows and choose; account for the time."""
        started = time.perf_counter()
        self._trunk.forward(passed.rows)
        decisions = self._verification.decide(passed)
        num_drafted = sum(len(round_.tree) for round_ in passed.rounds)
        self._statistics.record_pass(len(passed.rows.tokens), num_drafted, time.perf_counter() - started)
        return decisions

    def _settle(self, round_: Round, decision: Decision, now: float) -> None:
        """Make a round's yield final: stop rules, cache, counts, drafter, news."""
        sequence = round_.sequence
        if decision.error is not None:
            raise decision.error
        ending = sequence.stop_rules.accept(decision.tokens)
        tokens = decision.tokens[: ending.num_tokens]
        kept_nodes = decision.kept_nodes[: ending.num_tokens]
        logprobs = decision.logprobs[: ending.num_tokens]
        sequence.tokens += tokens
        self._commit(round_, kept_nodes)
        if not tokens:
            return  # a part of a prompt
        sequence.record_round(round_.tree, len(kept_nodes), len(tokens), now)
        sequence.text.append(ending.text)
        sequence.logprobs += logprobs
        sequence.chooser.extend(tokens)
        self._drafting.tell(round_, kept_nodes, tokens)
        self._outbox.post(Event(sequence.id, tokens, len(kept_nodes), ending.text, logprobs, ending.reason))
        if ending.reason is not None:
            self._retire(sequence, ending.reason)

    def _commit(self, round_: Round, kept_nodes: Sequence[int]) -> None:
        """Put kept rows next to each other and make them final."""
        pages = round_.sequence.pages
        assert pages is not None
        first = pages.committed + round_.num_tokens  # slot of node 0
        misplaced = [(node, place) for place, node in enumerate(kept_nodes) if node != place]
        if misplaced:
            sources, destinations = [first + node for node, _ in misplaced], [first + place for _, place in misplaced]
            self._trunk.move(pages.array, sources, destinations)
        self._accounts.commit(pages, round_.num_tokens + len(kept_nodes), round_.sequence.tokens)

    def submit(self, prompt: str | Iterable[int], params: SamplingParams = _GREEDY) -> int:
        """Take in a request.

        Args:
            prompt: a text, encoded as it stands, or token ids. For a conversation see `encode_chat`.
            params: how to choose and when to end.

        Returns:
            The id under which its events and its completion will come.

        Raises:
            ConfigError: an empty prompt, or ids or parameters that cannot hold.
            CapacityError: it would not fit into the context or the cache even alone.
        """
        if self._has_lent:
            raise ConfigError("Pages of the cache are lent; give them back before the next request.")
        tokens, stop_rules = read_request(prompt, params, self._tokenizer, self._limits)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        sequence = SequenceState(
            id=next(self._ids),
            params=params,
            seed=seed,
            tokens=tokens,
            num_prompt=len(tokens),
            chooser=self._verification.make_chooser(params, seed, tokens, stop_rules.end_tokens),
            stop_rules=stop_rules,
        )
        self._drafting.open(sequence)
        self._scheduler.add(sequence)
        self._living[sequence.id] = sequence
        return sequence.id

    def cancel(self, sequence_id: int) -> bool:
        """End a sequence now, wherever it stands; what it has written stays. False if it had ended already."""
        sequence = self._living.get(sequence_id)
        if sequence is None:
            return False
        text, _ = sequence.stop_rules.finish()  # held back so far: a stop string can no longer come of it
        sequence.text.append(text)
        self._outbox.post(Event(sequence_id, text=text, finish_reason="cancelled"))
        self._retire(sequence, "cancelled")
        return True

    def completion(self, sequence_id: int) -> Completion:
        """The account of a sequence that has ended; the engine forgets it.

        Raises:
            ConfigError: it has not ended, or its account was fetched already.
            Exception: what made it fail, if its last event said "error".
        """
        if sequence_id in self._living:
            raise ConfigError(
                f"Sequence {sequence_id} is still being written. Step until its last event, or cancel it."
            )
        return self._outbox.fetch(sequence_id)

    def generate(self, prompt: str | Iterable[int], params: SamplingParams = _GREEDY) -> Completion:
        """Write on from one prompt to its end. Arguments and errors are those of `submit`."""
        return self.generate_many([prompt], params)[0]

    def generate_many(
        self, prompts: Iterable[str | Iterable[int]], params: SamplingParams | Sequence[SamplingParams] = _GREEDY
    ) -> list[Completion]:
        """Write on from many prompts at once.

        Args:
            prompts: as for `submit`.
            params: one for all, or one for each.

        Returns:
            Their completions, in the order of the prompts.

        Raises:
            Exception: as for `submit` and `completion`; no sequence is left behind.
        """
        prompts = list(prompts)
        ids: list[int] = []
        try:
            for prompt, own_params in zip(prompts, params_for_each(params, len(prompts)), strict=True):
                ids.append(self.submit(prompt, own_params))
            for _ in self._follow(ids):
                pass
            return [self.completion(sequence_id) for sequence_id in ids]
        finally:
            self._forget(ids)

    def stream(self, prompt: str | Iterable[int], params: SamplingParams = _GREEDY) -> Iterator[Event]:
        """The events of one sequence as they come. Arguments and errors are those of `submit`.

        The request is submitted when the first event is asked for. Closing the
        iterator early cancels it and leaves no trace; at the regular end its
        completion waits under the events' `sequence_id`.
        """
        sequence_id = self.submit(prompt, params)
        ended = False
        try:
            for event in self._follow([sequence_id]):
                ended = event.finish_reason is not None
                yield event
        finally:
            if not ended:
                self._forget([sequence_id])

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The prompt for a conversation (`role` and `content` in each message), up to where the model answers."""
        return self._tokenizer.encode_chat(messages)

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing and return nothing."""
        return not self._living and not self._outbox

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in use."""
        return self._tokenizer

    @property
    def statistics(self) -> EngineStatistics:
        """Counts over the engine's life; a live record."""
        statistics = self._statistics
        statistics.shared_tokens = self._scheduler.num_shared_tokens
        statistics.preemptions = self._scheduler.num_preemptions
        statistics.drafter_faults = self._drafting.num_faults
        statistics.draft_s = self._drafting.seconds
        return statistics

    @property
    def num_running(self) -> int:
        """Sequences that hold cache pages."""
        return self._scheduler.num_running

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for admission."""
        return self._scheduler.num_waiting

    @property
    def num_pages(self) -> int:
        """Pages of the cache."""
        return self._accounts.num_pages

    @contextmanager
    def lend_pages(self, num_pages: int) -> Iterator[NDArray[np.int32]]:
        """Pages that no sequence uses and no prompt will meet, for passes of one's own over the trunk.

        Args:
            num_pages: how many.

        Returns:
            Their numbers, to be written to until the context is left. Until then no request is taken.

        Raises:
            ConfigError: sequences live, or pages are lent already.
            CapacityError: not so many are free.
        """
        if self._living or self._has_lent:
            raise ConfigError(
                f"Pages are lent once and while nothing is written; {len(self._living)} sequences live now."
            )
        table = self._accounts.open(())
        try:
            if not self._accounts.reserve(table, num_pages * PAGE_TOKENS):
                raise CapacityError(
                    f"{num_pages} pages are not free, only {self._accounts.num_available} of {self.num_pages}. "
                    "Wait for sequences to end, or raise cache_tokens."
                )
            self._has_lent = True
            yield table.array.copy()
        finally:
            self._has_lent = False
            self._accounts.close(table)

    def check_integrity(self) -> None:
        """Prove the cache accounts.

        Raises:
            AssertionError: they are not right.
        """
        self._accounts.check_integrity()
        self._scheduler.check_integrity()

    def close(self) -> None:
        """Cancel whatever lives and forget all results."""
        self._forget(list(self._living))
        self._outbox.clear()

    def __enter__(self) -> Self:
        """The engine itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _follow(self, ids: Collection[int]) -> Iterator[Event]:
        """News of some sequences until they have ended, stepping as needed; news of others are kept for them."""
        following = set(ids)
        while following:
            news = self._outbox.take_of(following)
            if news:
                following -= {event.sequence_id for event in news if event.finish_reason is not None}
                yield from news
            elif following & self._living.keys():
                self._advance()
            else:
                return  # someone else fetched their last events

    def _fail(self, sequence: SequenceState, error: Exception) -> None:
        """End a sequence that met an error; the others go on."""
        self._outbox.post(Event(sequence.id, finish_reason="error"))
        self._retire(sequence, error)

    def _retire(self, sequence: SequenceState, outcome: FinishReason | Exception) -> None:
        """Give back all that a sequence holds, and keep its account or its error."""
        self._scheduler.remove(sequence)
        self._drafting.close(sequence)
        del self._living[sequence.id]
        self._statistics.acceptance.merge(sequence.statistics)
        names = self._drafting.name, self._verification.name
        result = outcome if isinstance(outcome, Exception) else sequence.completion(outcome, *names)
        self._outbox.keep(sequence.id, result)

    def _forget(self, ids: Collection[int]) -> None:
        """Cancel what lives of `ids`, and drop their news and accounts."""
        for sequence_id in ids:
            self.cancel(sequence_id)
        self._outbox.forget(ids)
