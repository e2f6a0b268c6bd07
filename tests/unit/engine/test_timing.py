from __future__ import annotations

import itertools

from headstart.engine import timing
from headstart.testing.toy_trunk import ToyTrunk


class CountingTrunk(ToyTrunk):
    """Takes a millisecond a row by the clock that `tick` is, and now and then far longer."""

    clock = 0.0
    hiccups = itertools.cycle([0.0, 0.0, 0.0, 5.0])

    def forward(self, rows):
        super().forward(rows)
        CountingTrunk.clock += 0.001 * len(rows.tokens) + next(self.hiccups)


def test_the_curve_is_that_of_undisturbed_passes(monkeypatch):
    monkeypatch.setattr(timing.time, "perf_counter", lambda: CountingTrunk.clock)
    trunk = CountingTrunk()
    trunk.make_cache(4)
    curve = timing.measure_cost_curve(trunk, 4, max_rows=512)
    assert {rows: round(seconds, 6) for rows, seconds in curve.points.items()} == {
        rows: rows / 1000 for rows in timing.ROW_COUNTS
    }


def test_rows_look_back_on_a_context_where_there_is_room_for_one(monkeypatch):
    contexts = []
    original = timing._time_pass

    def noted(trunk, num_rows, context):
        contexts.append(context)
        return original(trunk, num_rows, context)

    monkeypatch.setattr(timing, "_time_pass", noted)
    for num_pages, max_context, context in ((32, 4096, 256), (64, 512, 256), (12, 4096, 160), (64, 100, 68)):
        trunk = ToyTrunk(max_context=max_context)
        trunk.make_cache(num_pages)
        contexts.clear()
        timing.measure_cost_curve(trunk, num_pages, max_rows=512)
        assert set(contexts[1:]) == {context}, (num_pages, max_context)


def test_no_pass_is_larger_than_what_will_run():
    for num_pages, max_rows, max_context, largest in (
        (1, 512, 512, 16),
        (9, 5, 512, 4),
        (9, 512, 9, 8),
        (9, 512, 1, 1),
    ):
        trunk = ToyTrunk(max_context=max_context)
        trunk.make_cache(num_pages)
        assert max(timing.measure_cost_curve(trunk, num_pages, max_rows).points) == largest
