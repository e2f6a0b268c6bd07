"""From turns to figures: each is of sums over all requests of a repeat, and its spread is over the repeats.

A speed-up compares a side with plain decoding within one repeat, on the requests that both have done, and is a ratio of
time per token. Texts count by their length: the mean of ratios of single texts would not be the time anyone saves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headstart.decoding.statistics import AcceptanceStatistics
from headstart.measure.bench.records import CostSample, RequestRecord, Turn, acceptance_of
from headstart.measure.bench.server_counters import acceptance_of_counters
from headstart.measure.bench.settings import PLAIN
from headstart.measure.report.latency import Latency
from headstart.measure.report.prediction import PassCosts, Prediction, predict
from headstart.measure.report.spread import Spread

Item = TypeVar("Item")

Pair = tuple[Turn, Turn]
"""The plain turn and the one of a side that drafts, on the same requests in the same repeat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """What a side's drafts came to; the glossary has the definitions.

    Attributes:
        rounds, drafted, accepted: counts.
        mean_acceptance_length: tokens a round, the trunk's own included.
        acceptance_rate: accepted over drafted.
        conditional: of depth 1, 2, ...
        survival: of depth 1, 2, ...
        reached: rounds in which depth 1, 2, ... was drafted and all before it kept.
        accepted_by_drafter: kept nodes by who guessed them.
    """

    rounds: int
    drafted: int
    accepted: int
    mean_acceptance_length: float
    acceptance_rate: float
    conditional: tuple[float, ...]
    survival: tuple[float, ...]
    reached: tuple[int, ...]
    accepted_by_drafter: Mapping[str, int]

    @staticmethod
    def of(counts: AcceptanceStatistics | None) -> Acceptance | None:
        """Of counts, if there are any."""
        if counts is None:
            return None
        return Acceptance(
            rounds=counts.rounds,
            drafted=counts.drafted,
            accepted=counts.accepted,
            mean_acceptance_length=counts.mean_acceptance_length,
            acceptance_rate=counts.acceptance_rate,
            conditional=counts.conditional_acceptance,
            survival=counts.survival,
            reached=tuple(counts.reached_by_depth),
            accepted_by_drafter=dict(counts.accepted_by_drafter),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SideFigures:
    """One side in one cell.

    Attributes:
        side: its name.
        num_requests: that it answered, over all repeats.
        tokens_per_s: of all requests together, their prompts' reading included.
        speedup: over plain decoding; `None` for plain decoding itself, or if nothing can be compared.
        speedup_by_category: likewise; of the time that requests took.
        latency: what senders waited for.
        acceptance: over all requests, if the side tells.
        acceptance_by_category: likewise.
        prediction: of the speed-up while decoding, if passes are known.
        num_compared: texts that were compared with plain ones.
        different: names of those that were not the same.
        server_tokens: tokens by a server's own counters, of the turns for which they are known; 0 if of none.
        usage_tokens: tokens of the same turns by the usage of its answers.
    """

    side: str
    num_requests: int
    tokens_per_s: Spread | None
    speedup: Spread | None
    speedup_by_category: Mapping[str, Spread]
    latency: Latency
    acceptance: Acceptance | None
    acceptance_by_category: Mapping[str, Acceptance]
    prediction: Prediction | None
    num_compared: int
    different: tuple[str, ...]
    server_tokens: int = 0
    usage_tokens: int = 0

    @property
    def label(self) -> str:
        """The name for readers."""
        return side_label(self.side)

    @property
    def drafts(self) -> bool:
        """Whether it is another side than plain decoding."""
        return self.side != PLAIN


def side_label(side: str) -> str:
    """The name of a side for readers, to whom `none` would be no drafter and no name."""
    return "plain" if side == PLAIN else side


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFigures:
    """All sides in one cell.

    Attributes:
        key: name of the cell.
        load: as in the settings.
        context: tokens of a prompt, or `None` for prompts as they are.
        sides: the plain one first.
        cost_ms: milliseconds of a plain trunk's pass by number of rows.
        relative_cost: v(R), the same over the first.
    """

    key: str
    load: Mapping[str, Any]
    context: int | None
    sides: tuple[SideFigures, ...]
    cost_ms: Mapping[int, float] = field(default_factory=dict)
    relative_cost: Mapping[int, float] = field(default_factory=dict)

    @property
    def concurrency(self) -> int | None:
        """Requests at once, in a closed loop."""
        return self.load.get("concurrency")

    @property
    def weight(self) -> tuple[float, float, int]:
        """By which cells are ordered: few requests at once first, then short contexts; open loops come last."""
        return self.concurrency or math.inf, self.load.get("rate_per_s", 0.0), self.context or 0

    def side(self, name: str) -> SideFigures | None:
        """The figures of a side, if it has any here."""
        return next((figures for figures in self.sides if figures.side == name), None)


def cell_figures(
    cell: Mapping[str, Any], sides: Sequence[str], turns: Sequence[Turn], costs: Sequence[CostSample]
) -> CellFigures:
    """The figures of a cell.

    Args:
        cell: as in the settings.
        sides: names, the plain one first.
        turns, costs: of all cells.
    """
    own_turns = [turn for turn in turns if turn.cell == cell["key"]]
    own_costs = [sample for sample in costs if sample.cell == cell["key"]]
    pass_costs = PassCosts.of(own_costs)
    points = {} if pass_costs is None else pass_costs.points
    first = next(iter(points.values()), 1.0)
    is_open = cell["load"]["kind"] == "open"
    figures = [_side_figures(side, own_turns, pass_costs, is_open=is_open) for side in sides]
    return CellFigures(
        key=cell["key"],
        load=cell["load"],
        context=cell["context"],
        sides=tuple(each for each in figures if each.num_requests),
        cost_ms={rows: 1e3 * seconds for rows, seconds in points.items()},
        relative_cost={rows: seconds / first for rows, seconds in points.items()},
    )


def _side_figures(side: str, turns: Sequence[Turn], costs: PassCosts | None, *, is_open: bool) -> SideFigures:
    own = [turn for turn in turns if turn.side == side]
    requests = [request for turn in own for request in turn.requests]
    pairs = [] if side == PLAIN else _pairs(turns, side)
    by_category = defaultdict(list)
    for request in requests:
        by_category[request.category].append(request)
    counted = [turn.counters for turn in own if turn.counters is not None]
    different = sorted(name for plain, drafted in pairs for name in _different(plain, drafted))
    counts = {category: Acceptance.of(acceptance_of(some)) for category, some in by_category.items()}
    return SideFigures(
        side=side,
        num_requests=len(requests),
        tokens_per_s=_spread(
            (sum(turn.num_tokens for turn in some), sum(turn.seconds for turn in some))
            for some in _whole_repeats(own, lambda turn: turn.repeat)
        ),
        speedup=_spread(_request_ratios(pairs) if is_open else _turn_ratios(pairs)),
        speedup_by_category={
            category: spread
            for category in by_category
            if (spread := _spread(_request_ratios(pairs, category))) is not None
        },
        latency=Latency.of(requests),
        acceptance=None if side == PLAIN else Acceptance.of(acceptance_of(requests) or acceptance_of_counters(counted)),
        acceptance_by_category={
            category: each for category, each in counts.items() if each is not None and side != PLAIN
        },
        prediction=_prediction(pairs, costs),
        num_compared=sum(len(drafted.requests) for _, drafted in pairs),
        different=tuple(different),
        server_tokens=sum(counters.tokens for counters in counted),
        usage_tokens=sum(turn.num_tokens for turn in own if turn.counters is not None),
    )


def _pairs(turns: Sequence[Turn], side: str) -> list[Pair]:
    """Of each repeat and group that both have done."""
    plain = {(turn.repeat, turn.group): turn for turn in turns if turn.side == PLAIN}
    return [
        (plain[turn.repeat, turn.group], turn)
        for turn in turns
        if turn.side == side and (turn.repeat, turn.group) in plain
    ]


def _whole_repeats(items: Sequence[Item], repeat_of: Callable[[Item], int]) -> list[list[Item]]:
    """Turns or pairs by repeat, without a repeat that was cut short unless it is the only one."""
    repeats: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        repeats[repeat_of(item)].append(item)
    whole = max((len(some) for some in repeats.values()), default=0)
    return [some for some in repeats.values() if len(some) == whole]


def _pairs_by_repeat(pairs: Sequence[Pair]) -> list[list[Pair]]:
    return _whole_repeats(pairs, lambda pair: pair[1].repeat)


def _turn_ratios(pairs: Sequence[Pair]) -> Iterable[tuple[float, float]]:
    """Time per token of turns, plain over drafted."""
    for some in _pairs_by_repeat(pairs):
        plain_s, plain_tokens = sum(plain.seconds for plain, _ in some), sum(plain.num_tokens for plain, _ in some)
        seconds, tokens = sum(turn.seconds for _, turn in some), sum(turn.num_tokens for _, turn in some)
        yield plain_s * tokens, seconds * plain_tokens


def _request_ratios(pairs: Sequence[Pair], category: str | None = None) -> Iterable[tuple[float, float]]:
    """Time per token that requests took, plain over drafted."""

    def took(turns: Iterable[Turn]) -> tuple[float, int]:
        some = [r for turn in turns for r in turn.requests if category is None or r.category == category]
        return sum(request.end_s for request in some), sum(request.num_tokens for request in some)

    for some in _pairs_by_repeat(pairs):
        (plain_s, plain_tokens), (seconds, tokens) = took(plain for plain, _ in some), took(turn for _, turn in some)
        yield plain_s * tokens, seconds * plain_tokens


def _spread(fractions: Iterable[tuple[float, float]]) -> Spread | None:
    values = [above / below for above, below in fractions if above and below]
    return Spread.of(values) if values else None


def _different(plain: Turn, drafted: Turn) -> list[str]:
    """Requests whose texts differ; one that only one side has differs too."""
    plain_hashes, hashes = _hashes(plain.requests), _hashes(drafted.requests)
    again = f" (repeat {drafted.repeat + 1})" if drafted.repeat else ""
    return [f"{name}{again}" for name in {*plain_hashes, *hashes} if plain_hashes.get(name) != hashes.get(name)]


def _hashes(requests: Iterable[RequestRecord]) -> dict[str, str]:
    return {request.name: request.token_hash for request in requests}


def _prediction(pairs: Sequence[Pair], costs: PassCosts | None) -> Prediction | None:
    if costs is None or not pairs:
        return None
    return predict([plain for plain, _ in pairs], [drafted for _, drafted in pairs], costs)
