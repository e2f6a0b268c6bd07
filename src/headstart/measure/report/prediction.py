"""The speed-up that measured costs and acceptance predict, beside the one that was measured while decoding.

    predicted = tau / (v + c)

With N sequences in a pass, C(N) stands for C(1). It is what a pass of plain decoding took on the same requests, the
engine's own work included; what the rows of guesses add was timed apart from the requests, right before each turn. v
is the time of the passes that checked guesses over that of plain passes of the same sequences, and tau the tokens that
each sequence got of a pass. c is what the engine did outside the trunk beyond what it does for a plain pass, over the
same: drafting, but also the choice of rows, the learning from what was kept, and the text of further tokens, which
weigh where the trunk is small. Of the requests that were drafted for, only rows, tokens and that time are taken. Passes
that read a prompt are no part of either speed-up.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headstart.decoding.cost_curve import CostCurve
from headstart.measure.bench.records import CostSample, PassSize, PassTally, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A predicted speed-up and its parts.

    Attributes:
        mean_acceptance_length: tau.
        check_cost: v.
        draft_cost: c.
        predicted: tau / (v + c).
        measured: while decoding, by the engine's own passes.
    """

    mean_acceptance_length: float
    check_cost: float
    draft_cost: float
    predicted: float
    measured: float

    @property
    def break_even_length(self) -> float:
        """The mean acceptance length at which drafting neither gains nor loses."""
        return self.check_cost + self.draft_cost


class PassCosts:
    """What passes took, as a curve over rows for each number of sequences."""

    def __init__(self, seconds: Mapping[PassSize, float]) -> None:
        """Take seconds by size; at least one."""
        by_sequences: dict[int, dict[int, float]] = defaultdict(dict)  # ascending
        for size, time_s in sorted(seconds.items()):
            by_sequences[size.sequences][size.rows] = time_s
        self._curves = {sequences: CostCurve(points) for sequences, points in by_sequences.items()}

    @classmethod
    def of(cls, samples: Iterable[CostSample]) -> PassCosts | None:
        """The medians of what passes took; `None` if none were timed.

        Samples of all sides belong together: their trunks do the same work, and a machine that is slow while one is
        timed and fast while another is would make rows of guesses look dear or free.
        """
        seconds: dict[PassSize, list[float]] = defaultdict(list)
        for sample in samples:
            for size, time_s in sample.seconds.items():
                seconds[size].append(time_s)
        return cls({size: statistics.median(times) for size, times in seconds.items()}) if seconds else None

    @property
    def points(self) -> dict[int, float]:
        """Seconds by rows: of fewer sequences with a row each, then of all of them with guesses."""
        most = max(self._curves)
        alone = {sequences: curve.cost(sequences) for sequences, curve in self._curves.items()}
        return {**alone, **self._curves[most].points}

    def added_s(self, sequences: int, drafted: int) -> float:
        """Seconds that so many guesses, in all, add to a pass of so many sequences."""
        timed = [curve.cost(count + drafted) - curve.cost(count) for count, curve in self._curves.items()]
        return float(np.interp(sequences, list(self._curves), timed))


def predict(plain_turns: Sequence[Turn], turns: Sequence[Turn], costs: PassCosts) -> Prediction | None:
    """Predict from passes.

    Args:
        plain_turns: of plain decoding.
        turns: of the side that drafts, on the same requests.
        costs: of the trunk's passes.

    Returns:
        `None` if a side does not tell its passes.
    """
    tallies = [tally for turn in turns for tally in turn.passes]
    plain_tallies = [tally for turn in plain_turns for tally in turn.passes]
    if not tallies or not plain_tallies:
        return None
    plain_pass_s = _seconds_by_sequences(plain_tallies, lambda tally: tally.seconds)
    plain_rest_s = _seconds_by_sequences(plain_tallies, _rest_s)

    plain_s = sum(tally.passes * _nearest(plain_pass_s, tally.sequences) for tally in tallies)
    check_s = plain_s + sum(tally.passes * costs.added_s(tally.sequences, tally.drafted) for tally in tallies)
    draft_s = sum(_rest_s(tally) - tally.passes * _nearest(plain_rest_s, tally.sequences) for tally in tallies)
    # the plain passes that would write as much: each gives one token to each sequence
    spared_s = sum(tally.tokens / tally.sequences * _nearest(plain_pass_s, tally.sequences) for tally in tallies)
    tau, check_cost, draft_cost = spared_s / plain_s, check_s / plain_s, draft_s / plain_s
    return Prediction(
        mean_acceptance_length=tau,
        check_cost=check_cost,
        draft_cost=draft_cost,
        predicted=tau / (check_cost + draft_cost),
        measured=spared_s / sum(tally.seconds for tally in tallies),
    )


def _rest_s(tally: PassTally) -> float:
    """Seconds outside the trunk."""
    return tally.seconds - tally.trunk_s


def _seconds_by_sequences(tallies: Iterable[PassTally], seconds_of: Callable[[PassTally], float]) -> dict[int, float]:
    """Mean seconds of a plain pass, by the sequences in it."""
    passes: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for tally in tallies:
        passes[tally.sequences] += tally.passes
        seconds[tally.sequences] += seconds_of(tally)
    return {sequences: seconds[sequences] / count for sequences, count in passes.items()}


def _nearest(seconds: dict[int, float], sequences: int) -> float:
    """Of so many sequences, or the nearest number that was seen: drafted texts do not end in step with plain ones."""
    return seconds[min(seconds, key=lambda seen: (abs(seen - sequences), seen))]
