"""Sides that take turns, and what a round of drafting costs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from head_figures.acceptance import Identity, no_progress
from head_figures.speed import AUTO, PEER, PLAIN, DraftCost, Race, Sides, Turn, measure_draft_cost, race_singly
from headstart import SamplingParams
from headstart.records import Completion


def turn(number: int, name: str, **seconds: float) -> Turn:
    return Turn(round=number, name=name, num_tokens=12, seconds={side: seconds[side] for side in seconds})


def test_a_ratio_is_of_a_round_s_sums_and_a_round_broken_off_does_not_count() -> None:
    race = Race([turn(0, "a", plain=3.0, auto=1.0), turn(0, "b", plain=1.0, auto=1.0)])
    race.turns += [turn(1, "a", plain=6.0, auto=1.0), turn(1, "b", plain=2.0, auto=1.0)]
    race.turns += [turn(2, "a", plain=100.0, auto=1.0)]
    ratio = race.ratio(PLAIN)
    assert ratio is not None
    assert (ratio.lowest, ratio.median, ratio.highest) == (2.0, 3.0, 4.0)
    speed = race.tokens_per_s(AUTO)
    assert speed is not None
    assert speed.median == 12.0
    assert race.ratios_by_name(PLAIN) == {"a": 6.0, "b": 1.5}


def test_what_came_with_the_prompt_takes_no_part_in_the_time(completion: Callable[..., Completion]) -> None:
    params = SamplingParams(max_tokens=20)

    def side(first_round_tokens: int, generation_s: float) -> Any:
        answer = completion((7,) * 20, rounds=20, first_round_tokens=first_round_tokens, generation_s=generation_s)
        return SimpleNamespace(generate=lambda token_ids, given: answer if given is params else None)

    for first_round_tokens, speedup in ((1, 2.0), (5, 2.0 * 15 / 19), (20, None)):
        race = Race()
        drafted_s = 0.0 if speedup is None else 5.0
        sides = Sides(plain=side(1, 10.0), auto=side(first_round_tokens, drafted_s), identity=Identity(),
                      rounds=1)  # fmt: skip
        race_singly(sides, [SimpleNamespace(id="x", token_ids=[1])], [params], race, no_progress)  # type: ignore[list-item]
        ratio = race.ratio(PLAIN)
        assert (None if ratio is None else ratio.median) == (None if speedup is None else pytest.approx(speedup))


def test_a_single_round_counts_though_it_was_broken_off() -> None:
    ratio = Race([turn(0, "a", plain=3.0, auto=2.0)]).ratio(PLAIN)
    assert ratio is not None
    assert ratio.median == 1.5


@pytest.mark.parametrize("turns", [[], [turn(0, "a", plain=0.0, auto=0.0)]], ids=["none", "too short to time"])
def test_without_times_there_is_no_ratio(turns: list[Turn]) -> None:
    race = Race(turns)
    assert race.ratio(PLAIN) is race.ratio(PEER) is race.tokens_per_s(PLAIN) is None


class SteppedEngine:
    """Reads a prompt, then writes in three steps; passes and drafts take the given seconds by the engine's account."""

    def __init__(self, num_rows: int, trunk_s: list[float], draft_s: list[float]) -> None:
        self.rows = self.drafted_rows = 0
        self.trunk_s = self.draft_s = 0.0
        self._left = [(num_rows, *times) for times in zip(trunk_s, draft_s, strict=True)]

    @property
    def statistics(self) -> SteppedEngine:
        return self

    def submit(self, prompt: object, params: object) -> int:
        self._left.insert(0, (40, 1000.0, 0.0))
        return 0

    @property
    def idle(self) -> bool:
        return not self._left

    def step(self) -> None:
        num_rows, trunk_s, draft_s = self._left.pop(0)
        self.rows += num_rows
        self.drafted_rows += num_rows - 1 if draft_s else 0
        self.trunk_s += trunk_s
        self.draft_s += draft_s

    def completion(self, sequence_id: int) -> None:
        assert self.idle


def test_drafting_is_counted_in_plain_passes_and_medians_leave_out_the_prompt() -> None:
    plain: Any = SteppedEngine(1, [2.0, 2.0, 50.0], [0.0, 0.0, 0.0])
    drafting: Any = SteppedEngine(16, [6.0, 6.0, 7.0], [30.0, 1.0, 1.0])  # the first round reads the prompt
    cost, done = DraftCost(), []
    prompt: Any = type("Prompt", (), {"token_ids": (1,)})
    measure_draft_cost([prompt], plain, drafting, SamplingParams(max_tokens=3), cost, lambda: done.append(1))
    assert (cost.drafting, cost.passes) == ([0.5], [3.0])
    assert (cost.draft_ms, cost.plain_ms) == ([1000.0], [2000.0])
    assert done == [1]
