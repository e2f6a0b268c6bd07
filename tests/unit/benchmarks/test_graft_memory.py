"""The benchmark of a graft's memory, on a small vocabulary."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import graft_memory


def test_a_cell_is_of_its_own_process_and_heads_that_do_not_see_each_other_take_the_memory_of_one() -> None:
    one, four = (graft_memory.measure_cell("parallel", depth, vocabulary=512, windows=2) for depth in (1, 4))
    assert four["gradient_bytes"] == 4 * one["gradient_bytes"] > 0
    assert one["step_s"] > 0
    # together they would hold three blocks' states more
    assert graft_memory.over_one(four, one) < 2
