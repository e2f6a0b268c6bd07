"""What passes cost where a cell works: with its numbers of sequences, at its context.

The engine's own curve is of one sequence after a few hundred tokens. Sixteen sequences read sixteen caches, and long
ones read more, so that a prediction for a cell needs curves of its own; and one for each number of sequences, as the
last requests run alone, and a guess looks back on a cache that is read anyway.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.measure.bench.clock import Clock
from headstart.measure.bench.records import PassSize
from headstart.records import SamplingParams
from headstart.runtime.protocol import Choice, Rows, Trunk

GUESSES = (0, 1, 2, 4, 8, 16)
"""Of each sequence, in the passes that are timed."""

# Passes of each size, as many as fit into the time, but some at least.
_SECONDS = 1.0
_LEAST_REPEATS = 3


def time_passes(
    trunk: Trunk, page_tables: Sequence[NDArray[np.int32]], context: int, clock: Clock, max_rows: int = 512
) -> dict[PassSize, float]:
    """Time passes of a few sizes, choices included.

    The mean of some passes counts, not the fastest: what they are held against are sums over requests, in which a
    machine's slow moments are too.

    Args:
        trunk: what to time.
        page_tables: of each sequence that writes at once at most; fewer are timed as well. Pages before the context's
            end are read, those behind it, for a root and guesses, are written to.
        context: tokens that each looks back on, within the trunk's context with root and guesses.
        clock: what to time with.
        max_rows: rows of a pass at most.

    Returns:
        Seconds by size.
    """
    num_sequences = len(page_tables)
    sizes = [
        PassSize(sequences, sequences * (1 + guesses))
        for sequences in (*_powers_below(num_sequences), num_sequences)
        for guesses in GUESSES
        if sequences * (1 + guesses) <= max_rows
    ]
    # the first pass pays for what is touched for the first time
    _time_pass(trunk, sizes[-1], page_tables, context, clock)
    # sizes in turn, so that a slow moment does not fall on one of them alone
    seconds: list[list[float]] = []
    ends_s = clock.now() + _SECONDS
    while len(seconds) < _LEAST_REPEATS or clock.now() < ends_s:
        seconds.append([_time_pass(trunk, size, page_tables, context, clock) for size in sizes])
    return {size: statistics.fmean(times) for size, times in zip(sizes, zip(*seconds, strict=True), strict=True)}


def _powers_below(number: int) -> list[int]:
    return [1 << exponent for exponent in range((number - 1).bit_length())]


def _time_pass(
    trunk: Trunk, size: PassSize, page_tables: Sequence[NDArray[np.int32]], context: int, clock: Clock
) -> float:
    # the context's keys and values need not be this context's to take their time, but some must have been written
    # there, as the warm-up does: memory that never was is read from nowhere, at half the price
    num_sequences, count = size
    rows_each = count // num_sequences
    place = np.tile(np.arange(rows_each, dtype=np.int32), num_sequences)
    order = np.arange(count, dtype=np.int32)
    rows = Rows(
        tokens=order % np.int32(trunk.vocab_size),
        positions=place + np.int32(context),
        parents=np.where(place == 0, -1, order - 1).astype(np.int32),
        sequences=np.repeat(np.arange(num_sequences, dtype=np.int32), rows_each),
        page_tables=list(page_tables[:num_sequences]),
        committed=np.full(num_sequences, context, dtype=np.int32),
        wanted=order,
    )
    chooser = trunk.make_chooser(SamplingParams(), 0, (0,), ())
    choices = [Choice(row, chooser, int(rows.positions[row]) + 1, ()) for row in range(count)]
    started = clock.now()
    trunk.forward(rows)
    trunk.choose(choices)
    return clock.now() - started
