"""The order in which everything is measured: sides in turn, so that a slow moment of the machine hits all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headstart.measure.bench.journal import Journal
from headstart.measure.bench.records import CostSample, PassSize, PassTally, RequestRecord, Turn
from headstart.measure.bench.server_counters import ServerCounters
from headstart.measure.bench.settings import BenchSettings, FilledCell
from headstart.measure.workload import Ask, ClosedLoop, Feed
from headstart.records import SamplingParams

Show = Callable[[int, int, str], object]
"""Told how many requests are done, of how many, and what is going on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What a side did with a feed.

    Attributes:
        seconds: from the beginning to the last end.
        requests: in the order of their ends.
        passes, counters: as in `Turn`.
    """

    seconds: float
    requests: tuple[RequestRecord, ...]
    passes: tuple[PassTally, ...] = ()
    counters: ServerCounters | None = None


class Side(Protocol):
    """One way of decoding.

    Attributes:
        name: under which it is reported.
    """

    name: str

    def answer(
        self,
        feed: Feed,
        params: Callable[[Ask], SamplingParams],
        sampled: Collection[str],
        should_stop: Callable[[], bool],
        advance: Callable[[], object],
    ) -> Answers | None:
        """Answer all requests of a feed, and the follow-ups that come of them.

        Args:
            feed: hands them out.
            params: how each is written.
            sampled: names of the requests whose text is kept.
            should_stop: asked now and then.
            advance: called for each request that ended.

        Returns:
            `None` if it was stopped.
        """

    def time_passes(self, num_sequences: int, context: int) -> Mapping[PassSize, float]:
        """Seconds of the trunk's passes by size; nothing from a side that cannot tell.

        Args:
            num_sequences: that write at once.
            context: tokens that each looks back on.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """One turn that is to be taken."""

    filled: FilledCell
    side: Side
    repeat: int
    group: str
    asks: tuple[Ask, ...]

    @property
    def cell(self) -> str:
        return self.filled.cell.key

    @property
    def num_requests(self) -> int:
        return sum(1 + len(ask.prompt.follow_ups) for ask in self.asks)


class Bench:
    """A run.

    Args:
        sides: in the order of the settings' names.
        filled: the settings' cells with their prompts.
        settings: what is measured.
        journal: keeps what was measured; turns that it has are not taken again.
        show: told of progress.
        should_stop: asked now and then.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        filled: Sequence[FilledCell],
        settings: BenchSettings,
        journal: Journal,
        *,
        show: Show = lambda done, total, note: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sides = tuple(sides)
        self._filled = tuple(filled)
        self._settings = settings
        self._journal = journal
        self._show = show
        self._should_stop = should_stop
        self._num_done = self._num_requests = 0

    def run(self) -> bool:
        """Measure what is left to be measured; whether all is done."""
        steps = list(self._steps())
        self._num_requests = sum(step.num_requests for step in steps)
        left = [
            step for step in steps if not self._journal.has(Turn, step.cell, step.side.name, step.repeat, step.group)
        ]
        self._num_done = self._num_requests - sum(step.num_requests for step in left)
        warmed: set[str] = set()
        for step in left:
            if step.cell not in warmed:
                warmed.add(step.cell)
                if not self._warm_up(step.filled):
                    return False
            if not (self._time_passes(step) and self._take_turn(step)):
                return False
        return True

    def _steps(self) -> Iterator[_Step]:
        for filled in self._filled:
            groups = filled.groups()
            for repeat in range(self._settings.repeats):
                # who is first in a repeat is not first in the next
                shift = repeat % len(self._sides)
                order = self._sides[shift:] + self._sides[:shift]
                for group, asks in groups.items():
                    for side in order:
                        yield _Step(filled=filled, side=side, repeat=repeat, group=group, asks=tuple(asks))

    def _take_turn(self, step: _Step) -> bool:
        note = f"{step.cell}, {step.side.name}, repeat {step.repeat + 1}, {step.group}"
        self._tell(note)

        def advance() -> None:
            self._num_done += 1
            self._tell(note)

        answers = step.side.answer(
            Feed(step.asks, step.filled.cell.load), self._params, self._sampled(step), self._should_stop, advance
        )
        if answers is None:
            return False
        self._journal.add(
            Turn(
                cell=step.cell,
                side=step.side.name,
                repeat=step.repeat,
                group=step.group,
                seconds=answers.seconds,
                requests=answers.requests,
                passes=answers.passes,
                counters=answers.counters,
            )
        )
        return True

    def _sampled(self, step: _Step) -> Collection[str]:
        """One text of each category in the first cell is enough to look at."""
        if step.repeat or step.filled is not self._filled[0]:
            return ()
        first: dict[str, str] = {}
        for ask in step.asks:
            first.setdefault(ask.prompt.category, ask.name)
        return set(first.values())

    def _warm_up(self, filled: FilledCell) -> bool:
        """Let every side write a little, which is not counted: what is touched for the first time takes longer.

        Prompts that are to be cached are read here.
        """
        load = filled.cell.load
        count = load.concurrency if isinstance(load, ClosedLoop) else 1
        asks = [ask for asks in filled.groups().values() for ask in asks]
        asks = [ask for ask in asks if ask.copy == 0] if self._settings.cached_prompts else asks[:count]
        for side in self._sides:
            self._tell(f"{filled.cell.key}, {side.name}, warming up")
            answers = side.answer(
                Feed(asks, ClosedLoop(count)), self._short_params, (), self._should_stop, lambda: None
            )
            if answers is None:
                return False
        return True

    def _tell(self, note: str) -> None:
        self._show(self._num_done, self._num_requests, note)

    def _time_passes(self, step: _Step) -> bool:
        """Time the passes of a side right before its turn, so that both meet the machine in the same mood."""
        load = step.filled.cell.load
        place = (step.cell, step.side.name, step.repeat, step.group)
        if not isinstance(load, ClosedLoop) or self._journal.has(CostSample, *place):
            return True
        if self._should_stop():
            return False
        # what a sequence looks back on half-way through its answer
        context = step.filled.usual_tokens + self._settings.max_tokens // 2
        seconds = step.side.time_passes(load.concurrency, context)
        cell, side, repeat, group = place
        self._journal.add(
            CostSample(cell=cell, side=side, repeat=repeat, group=group, context=context, seconds=seconds)
        )
        return True

    def _params(self, ask: Ask) -> SamplingParams:
        return self._settings.params(ask.name)

    def _short_params(self, ask: Ask) -> SamplingParams:
        return SamplingParams(max_tokens=min(self._settings.warm_up_tokens, self._settings.max_tokens))
