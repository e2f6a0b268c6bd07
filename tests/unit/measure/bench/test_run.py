from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headstart.errors import ConfigError
from headstart.measure.bench import (
    Bench,
    BenchSettings,
    Cell,
    CostSample,
    FilledCell,
    Journal,
    PassSize,
    PassTally,
    RequestRecord,
    Turn,
)
from headstart.measure.bench.run import Answers
from headstart.measure.bench.server_counters import ServerCounters
from headstart.measure.bench.settings import fill_cells
from headstart.measure.workload import Ask, ClosedLoop, Feed, OpenLoop, Prompt
from headstart.records import SamplingParams


class ScriptedSide:
    """Answers at once, and notes what it was asked; stops as soon as it may."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls
        self.params: dict[str, SamplingParams] = {}
        self.sampled: set[str] = set()

    def answer(
        self,
        feed: Feed,
        params: Callable[[Ask], SamplingParams],
        sampled: Collection[str],
        should_stop: Callable[[], bool],
        advance: Callable[[], object],
    ) -> Answers | None:
        self.calls.append(self.name)
        self.sampled |= set(sampled)
        records = []
        while (due := feed.take(0.0, 0)) is not None:
            if should_stop():
                return None
            _, ask = due
            self.params[ask.name] = params(ask)
            records.append(record(ask.name, ask.prompt.category))
            advance()
        return Answers(seconds=float(len(records)), requests=tuple(records))

    def time_passes(self, num_sequences: int, context: int) -> Mapping[PassSize, float]:
        self.calls.append(f"time {self.name} {num_sequences} {context}")
        return {PassSize(num_sequences, num_sequences): 0.1}


def record(name: str, category: str) -> RequestRecord:
    return RequestRecord(
        name=name, category=category, prompt_tokens=3, num_tokens=5, token_hash="h", finish_reason="length",
        first_s=0.5, end_s=1.0, pauses_s=(0.1, 0.2),
    )  # fmt: skip


def sides(settings: BenchSettings, calls: list[str]) -> list[ScriptedSide]:
    return [ScriptedSide(name, calls) for name in settings.sides]


def test_sides_take_turns_and_none_is_always_first(settings: BenchSettings, filled: list[FilledCell]) -> None:
    journal = Journal(None, {})
    assert Bench(sides(settings, []), filled, settings, journal).run()
    alone = [turn for turn in journal.turns if turn.cell == "1 at once"]
    assert [(turn.group, turn.side) for turn in alone if turn.repeat == 0] == [
        ("code", "none"), ("code", "lookup"), ("code", "heads"),
        ("maths", "none"), ("maths", "lookup"), ("maths", "heads"),
    ]  # fmt: skip
    assert [turn.side for turn in alone if turn.repeat == 1][:3] == ["lookup", "heads", "none"]
    counts = Counter((turn.cell, turn.side) for turn in journal.turns)
    assert counts == {
        (cell, side): number for side in settings.sides for cell, number in (("1 at once", 4), ("4 at once", 2))
    }


def test_a_small_set_comes_again_for_many_users_and_mixes_categories(filled: list[FilledCell]) -> None:
    (asks,) = filled[1].groups().values()
    assert len(asks) == 8  # two for each of four users
    assert len({ask.name for ask in asks}) == 8
    assert [ask.prompt.category for ask in asks[:4]] == ["code", "maths", "code", "maths"]


def test_every_side_warms_up_in_each_cell_and_times_passes_before_each_turn(
    settings: BenchSettings, filled: list[FilledCell]
) -> None:
    calls: list[str] = []
    journal = Journal(None, {})
    Bench(sides(settings, calls), filled, settings, journal).run()
    assert calls[:3] == ["none", "lookup", "heads"]  # not counted
    # after the usual prompt and half an answer
    assert calls[3:7] == ["time none 1 74", "none", "time lookup 1 74", "lookup"]
    # two groups in two repeats, or all together
    assert Counter(call for call in calls if call.startswith("time")) == {
        f"time {side} {batch} 74": turns for side in settings.sides for batch, turns in ((1, 4), (4, 2))
    }


def test_every_prompt_is_read_beforehand_if_prompts_are_cached(
    settings: BenchSettings, filled: list[FilledCell]
) -> None:
    asked: list[list[str]] = []

    class NotingSide(ScriptedSide):
        def answer(self, feed: Feed, *arguments: Any) -> Answers | None:
            answers = super().answer(feed, *arguments)
            assert answers is not None
            asked.append([request.name for request in answers.requests])
            return answers

    cached = replace(settings, cached_prompts=True, sides=("none",), repeats=1)
    Bench([NotingSide("none", [])], filled, cached, Journal(None, {})).run()
    names = ["code-0", "code-1", "maths-0", "maths-1"]
    assert sorted(asked[0]) == names  # one at a time, of both groups
    assert sorted(asked[3]) == names  # four at a time, each once though it will come twice
    assert len(asked[4]) == 8


def test_all_sides_write_with_the_same_seeds(settings: BenchSettings, filled: list[FilledCell]) -> None:
    sampling = replace(settings, temperature=1.0)
    used = sides(sampling, [])
    Bench(used, filled, sampling, Journal(None, {})).run()
    first = {name: params.seed for name, params in used[0].params.items()}
    assert all({name: params.seed for name, params in side.params.items()} == first for side in used)
    assert len(set(first.values())) == len(first)


def test_one_text_of_each_category_is_kept(settings: BenchSettings, filled: list[FilledCell]) -> None:
    used = sides(settings, [])
    Bench(used, filled, settings, Journal(None, {})).run()
    assert used[0].sampled == {"code-0", "maths-0"}


def test_progress_counts_requests(settings: BenchSettings, filled: list[FilledCell]) -> None:
    seen: list[tuple[int, int]] = []
    run = Bench(
        sides(settings, []),
        filled,
        settings,
        Journal(None, {}),
        show=lambda done, total, note: seen.append((done, total)),
    )
    run.run()
    total = 3 * 2 * (4 + 8)
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_run_goes_on_where_it_was_stopped(settings: BenchSettings, filled: list[FilledCell], tmp_path: Path) -> None:
    looks = iter(range(10**6))
    journal = Journal(tmp_path, {"model": "m"})
    assert not Bench(sides(settings, []), filled, settings, journal, should_stop=lambda: next(looks) > 20).run()
    assert 0 < len(journal.turns) < 18

    calls: list[str] = []
    again = Journal(tmp_path, {"model": "m"})
    assert again.turns == journal.turns
    assert Bench(sides(settings, calls), filled, settings, again).run()
    assert len(again.turns) == 18
    assert len({(turn.cell, turn.side, turn.repeat, turn.group) for turn in again.turns}) == 18
    assert Journal(tmp_path, {"model": "m"}).turns == again.turns
    done: list[str] = []
    assert Bench(sides(settings, done), filled, settings, Journal(tmp_path, {"model": "m"})).run()
    assert done == []


def test_settings_that_cannot_hold() -> None:
    cell = Cell(load=ClosedLoop(1))
    with pytest.raises(ConfigError, match="plain decoding"):
        BenchSettings(sides=("lookup",), cells=(cell,))
    with pytest.raises(ConfigError, match="'lookup' is named twice"):
        BenchSettings(sides=("none", "lookup", "lookup"), cells=(cell,))
    with pytest.raises(ConfigError, match="named twice"):
        BenchSettings(sides=("none", "lookup"), cells=(cell, cell))
    with pytest.raises(ConfigError, match="repeats = 0"):
        BenchSettings(sides=("none", "lookup"), cells=(cell,), repeats=0)
    with pytest.raises(ConfigError, match="max_tokens"):
        BenchSettings(sides=("none", "lookup"), cells=(cell,), max_tokens=0)
    with pytest.raises(ConfigError, match="context = 0"):
        BenchSettings(sides=("none", "lookup"), cells=(Cell(load=ClosedLoop(1), context=0),))


def test_prompts_that_are_too_long_for_a_cell_are_left_out_and_told() -> None:
    prompts = [Prompt(id=str(length), category="c", messages=(("user", "x" * length),)) for length in (10, 2000, 400)]
    short, natural = fill_cells(
        [Cell(load=ClosedLoop(1), context=500), Cell(load=OpenLoop(1.0))], prompts, lambda p: len(p.messages[0][1]), 0
    )
    assert [prompt.id for prompt in short.prompts] == ["10", "400"]
    assert short.num_left_out == 1
    assert 300 < short.usual_tokens <= 500
    assert natural.prompts == tuple(prompts)
    with pytest.raises(ConfigError, match="shortest prompt has 10"):
        fill_cells([Cell(load=ClosedLoop(1), context=5)], prompts, lambda p: len(p.messages[0][1]), 0)


def test_records_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    turn = Turn(
        cell="c", side="none", repeat=0, group="g", seconds=1.5, requests=(record("a", "code"),),
        passes=(PassTally(sequences=1, drafted=2, passes=3, tokens=4, seconds=0.5, trunk_s=0.25),),
        counters=ServerCounters(tokens=5, drafts=2, drafted=4, accepted=3, accepted_by_depth=(2, 1)),
    )  # fmt: skip
    cost = CostSample(
        cell="c", side="none", repeat=0, group="g", context=3, seconds={PassSize(1, 1): 0.25, PassSize(1, 16): 0.5}
    )
    journal = Journal(tmp_path, {})
    journal.add(turn)
    journal.add(cost)
    again = Journal(tmp_path, {})
    assert (again.turns, again.costs) == ([turn], [cost])
