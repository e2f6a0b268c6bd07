"""The cost curve's first points, measured before the first request."""

from __future__ import annotations

import time

import numpy as np

from headstart.decoding.cost_curve import CostCurve
from headstart.engine.cache import num_pages_for
from headstart.records import SamplingParams
from headstart.runtime.protocol import PAGE_TOKENS, Choice, Rows, Trunk

ROW_COUNTS = (1, 2, 4, 8, 16, 32)
_REPEATS = 3
_CONTEXT = 256  # tokens that a row looks back on: with none, attention would seem to cost nothing


def measure_cost_curve(trunk: Trunk, num_pages: int, max_rows: int) -> CostCurve:
    """Time passes of a few sizes, choices included; the fastest of each size counts, for noise only adds.

    Writes to the first pages of the cache: to be called while all pages are free.

    Args:
        trunk: what to time; its cache is made.
        num_pages: pages of the cache.
        max_rows: rows of the largest pass that will run.
    """
    most = min(max_rows, num_pages * PAGE_TOKENS, trunk.max_context)
    counts = [count for count in ROW_COUNTS if count <= most]
    _time_pass(trunk, counts[-1], 0)  # the first pass pays for what is touched for the first time
    # sizes in turn, so that a slow moment does not fall on one of them alone
    context = max(0, min(_CONTEXT, num_pages * PAGE_TOKENS - counts[-1], trunk.max_context - counts[-1]))
    seconds = [[_time_pass(trunk, count, context) for count in counts] for _ in range(_REPEATS)]
    return CostCurve({count: min(times) for count, times in zip(counts, zip(*seconds, strict=True), strict=True)})


def _time_pass(trunk: Trunk, num_rows: int, context: int) -> float:
    # the context's keys and values need not have been computed: so few of them cost little more than none
    order = np.arange(num_rows, dtype=np.int32)
    rows = Rows(
        tokens=order % np.int32(trunk.vocab_size),
        positions=order + np.int32(context),
        parents=order - np.int32(1),
        sequences=np.zeros(num_rows, dtype=np.int32),
        page_tables=[np.arange(num_pages_for(context + num_rows), dtype=np.int32)],
        committed=np.array([context], dtype=np.int32),
        wanted=order,
    )
    chooser = trunk.make_chooser(SamplingParams(), 0, (0,), ())
    choices = [Choice(row, chooser, context + row + 1, ()) for row in range(num_rows)]
    started = time.perf_counter()
    trunk.forward(rows)
    trunk.choose(choices)
    return time.perf_counter() - started
