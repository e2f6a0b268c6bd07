"""One side of a run in this process: an engine that decodes plainly or with a drafter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from headstart.decoding.statistics import AcceptanceStatistics
from headstart.engine import Engine, Tokenizer, token_hash
from headstart.engine.cache import num_pages_for
from headstart.engine.engine import MAX_ROWS
from headstart.engine.loading import EngineParts
from headstart.errors import ConfigError
from headstart.measure.bench.clock import Clock
from headstart.measure.bench.pass_costs import GUESSES, time_passes
from headstart.measure.bench.records import PassSize, PassTally, RequestRecord
from headstart.measure.bench.run import Answers
from headstart.measure.bench.settings import BenchSettings, FilledCell
from headstart.measure.workload import Ask, ClosedLoop, Feed, Prompt
from headstart.records import Event, SamplingParams
from headstart.runtime.protocol import PAGE_TOKENS, Trunk

OPEN_LOOP_BATCH = 16
"""Requests that run at the same time in an open loop; more of them wait."""

# Of a sequence, in a pass that is timed: its root and guesses.
_PASS_ROWS = 1 + max(GUESSES)

# What a template adds around a follow-up, generously.
_FRAME_TOKENS = 32


@dataclass(slots=True)
class _Request:
    """A request that is being answered; times are seconds from the turn's beginning."""

    ask: Ask
    came_s: float
    prompt_tokens: int
    arrivals_s: list[float] = field(default_factory=list)
    pieces: list[tuple[int, int]] = field(default_factory=list)  # token and depth


@dataclass(slots=True)
class _Tally:
    passes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    trunk_s: float = 0.0


class EngineSide:
    """An engine as a side.

    Args:
        name: of the side.
        engine: idle. If it shares prefixes, prompts that come again are not read again.
        trunk: the engine's.
        clock: what to time with.
        encode: makes token ids of a request.
    """

    def __init__(
        self, name: str, engine: Engine, trunk: Trunk, clock: Clock, encode: Callable[[Ask], Sequence[int]]
    ) -> None:
        self.name = name
        self._engine = engine
        self._trunk = trunk
        self._clock = clock
        self._encode = encode

    def answer(
        self,
        feed: Feed,
        params: Callable[[Ask], SamplingParams],
        sampled: Collection[str],
        should_stop: Callable[[], bool],
        advance: Callable[[], object],
    ) -> Answers | None:
        """Answer all requests of a feed; see `headstart.measure.bench.run.Side`."""
        active: dict[int, _Request] = {}
        records: list[RequestRecord] = []
        tallies: dict[tuple[int, int], _Tally] = defaultdict(_Tally)
        started_s = self._clock.now()
        while feed or active:
            if should_stop():
                self._engine.close()
                return None
            now_s = self._clock.now() - started_s
            while (due := feed.take(now_s, len(active))) is not None:
                came_s, ask = due
                tokens = self._encode(ask)
                active[self._engine.submit(tokens, params(ask))] = _Request(ask, came_s, len(tokens))
            if not active:
                next_s = feed.next_due_s()
                assert next_s is not None, "an idle feed waits for a time"
                self._clock.wait(max(next_s - now_s, 0.0))
                continue
            before = self._counts()
            events = self._engine.step()
            arrived_s = self._clock.now() - started_s
            self._tally_pass(before, events, arrived_s - now_s, tallies)
            for event in events:
                request = active[event.sequence_id]
                self._note(request, event, arrived_s, keep=request.ask.name in sampled)
                if event.finish_reason is not None:
                    del active[event.sequence_id]
                    record, follow_up = self._finish(request, event.sequence_id)
                    records.append(record)
                    if follow_up is not None:
                        feed.add_follow_up(arrived_s, follow_up)
                    advance()
        return Answers(
            seconds=self._clock.now() - started_s,
            requests=tuple(records),
            passes=tuple(
                PassTally(
                    sequences=sequences,
                    drafted=drafted,
                    passes=tally.passes,
                    tokens=tally.tokens,
                    seconds=tally.seconds,
                    trunk_s=tally.trunk_s,
                )
                for (sequences, drafted), tally in sorted(tallies.items())
            ),
        )

    def time_passes(self, num_sequences: int, context: int) -> Mapping[PassSize, float]:
        """Seconds of the trunk's passes by size; see `headstart.measure.bench.run.Side`."""
        context = max(0, min(context, self._trunk.max_context - _PASS_ROWS))
        # whole pages of it, so that pages which hold prompts are only read
        num_read, num_written = context // PAGE_TOKENS, num_pages_for(_PASS_ROWS)
        with self._engine.lend_pages(num_sequences * num_written) as lent:
            read = np.arange(num_sequences * num_read, dtype=np.int32) % np.int32(self._engine.num_pages)
            tables = np.hstack([read.reshape(num_sequences, num_read), lent.reshape(num_sequences, num_written)])
            return time_passes(self._trunk, list(tables), num_read * PAGE_TOKENS, self._clock)

    def _counts(self) -> tuple[int, int, float]:
        now = self._engine.statistics
        return now.rows, now.drafted_rows, now.trunk_s

    def _tally_pass(
        self,
        before: tuple[int, int, float],
        events: Sequence[Event],
        seconds: float,
        tallies: dict[tuple[int, int], _Tally],
    ) -> None:
        """Count a pass if no prompt was read in it."""
        rows, drafted, trunk_s = (now - then for now, then in zip(self._counts(), before, strict=True))
        writing = [event for event in events if event.token_ids]
        # every row that is no guess was a sequence's root
        if not writing or rows - drafted != len(writing):
            return
        tally = tallies[len(writing), int(drafted)]
        tally.passes += 1
        tally.tokens += sum(len(event.token_ids) for event in writing)
        tally.seconds += seconds
        tally.trunk_s += trunk_s

    def _note(self, request: _Request, event: Event, arrived_s: float, *, keep: bool) -> None:
        if event.token_ids:
            request.arrivals_s.append(arrived_s)
        if keep:
            depths = (place + 1 if place < event.num_drafted_kept else 0 for place in range(len(event.token_ids)))
            request.pieces += zip(event.token_ids, depths, strict=True)

    def _finish(self, request: _Request, sequence_id: int) -> tuple[RequestRecord, Ask | None]:
        completion = self._engine.completion(sequence_id)
        arrivals_s = request.arrivals_s
        record = RequestRecord(
            name=request.ask.name,
            category=request.ask.prompt.category,
            prompt_tokens=request.prompt_tokens,
            num_tokens=len(completion.token_ids),
            token_hash=token_hash(completion.token_ids),
            finish_reason=completion.finish_reason,
            first_s=arrivals_s[0] - request.came_s,
            end_s=arrivals_s[-1] - request.came_s,
            pauses_s=tuple(later - earlier for earlier, later in pairwise(arrivals_s)),
            acceptance=AcceptanceStatistics.of(completion).to_json(),
            sample=_spell(self._engine.tokenizer, request.pieces),
        )
        return record, request.ask.follow_up(completion.text)


def encode_with(tokenizer: Tokenizer, *, has_template: bool) -> Callable[[Ask], list[int]]:
    """How requests become token ids.

    Args:
        tokenizer: the model's.
        has_template: whether it knows conversations; without, their texts are joined and written on.
    """

    def encode(ask: Ask) -> list[int]:
        if ask.raw_text is not None:
            return tokenizer.encode(ask.raw_text)
        if has_template:
            return tokenizer.encode_chat(ask.messages)
        return tokenizer.encode("\n\n".join(message["content"] for message in ask.messages))

    return encode


def make_engine_sides(
    parts: Mapping[str, EngineParts], filled: Sequence[FilledCell], settings: BenchSettings, clock: Clock
) -> list[EngineSide]:
    """A side for each loaded drafter, with a cache that holds the largest cell.

    Each has a model of its own in memory: a trunk serves one engine at a time, and the plain one keeps nothing for
    heads.

    Args:
        parts: by name of the side.
        filled: all cells with their prompts.
        settings: of the run.
        clock: what to time with.

    Raises:
        ConfigError: a cell does not fit into the model's context.
        CapacityError: it does not fit into memory.
    """
    plain = next(iter(parts.values()))
    has_template = plain.tokenizer.chat_template is not None
    encode = encode_with(plain.tokenizer, has_template=has_template)
    num_pages = 0
    for each in filled:
        lengths = [_most_tokens(prompt, encode, settings.max_tokens) for prompt in each.prompts]
        if max(lengths) > plain.trunk.max_context:
            raise ConfigError(
                f"{each.cell.key}: the longest prompt and its answers may have {max(lengths)} tokens, the model's "
                f"context holds {plain.trunk.max_context}. Take a shorter --context, or a lower --max-tokens."
            )
        if settings.cached_prompts:
            needed = _pages_of_all(each, encode, settings.max_tokens)
        else:
            needed = num_at_once(each) * num_pages_for(max(lengths) + _PASS_ROWS)
        num_pages = max(num_pages, needed)
    max_batch = max(map(num_at_once, filled))
    return [
        EngineSide(
            name,
            each.make_engine(
                share_prefixes=settings.cached_prompts,
                max_batch=max_batch,
                max_rows=max(MAX_ROWS, max_batch),
                cache_tokens=num_pages * PAGE_TOKENS,
            ),
            each.trunk, clock, encode,
        )
        for name, each in parts.items()
    ]  # fmt: skip


def num_at_once(filled: FilledCell) -> int:
    """Requests that run at the same time in a cell."""
    load = filled.cell.load
    return load.concurrency if isinstance(load, ClosedLoop) else OPEN_LOOP_BATCH


def _pages_of_all(filled: FilledCell, encode: Callable[[Ask], Sequence[int]], max_tokens: int) -> int:
    """Pages that hold all prompts of a cell and all that is written to them, so that none is driven out."""
    # of each that writes: a page that is begun, and what is behind it
    num_pages = num_at_once(filled) * (1 + num_pages_for(_PASS_ROWS))
    for asks in filled.groups().values():
        for ask in asks:
            most_tokens = _most_tokens(ask.prompt, encode, max_tokens)
            shared = len(encode(ask)) if ask.copy else 0
            num_pages += num_pages_for(most_tokens - shared // PAGE_TOKENS * PAGE_TOKENS)
    return num_pages


def _most_tokens(prompt: Prompt, encode: Callable[[Ask], Sequence[int]], max_tokens: int) -> int:
    """Of the last turn's prompt and answer."""
    follow_ups = sum(
        len(encode(Ask(prompt=Prompt(id="", category="", messages=(("user", text),))))) + max_tokens + _FRAME_TOKENS
        for text in prompt.follow_ups
    )
    return len(encode(Ask(prompt=prompt))) + max_tokens + follow_ups


def _spell(tokenizer: Tokenizer, pieces: Sequence[tuple[int, int]]) -> tuple[tuple[str, int], ...]:
    """The text of each token with its depth; where several tokens share a character, it is the last one's."""
    stream = tokenizer.stream()
    return tuple((stream.push([token]), depth) for token, depth in pieces)
