from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from headstart.decoding.lookup import LookupDrafter
from headstart.engine import token_hash
from headstart.engine.loading import load_parts
from headstart.measure.bench import BenchSettings, Cell, Clock, EngineSide, FilledCell, make_engine_sides
from headstart.measure.bench.engine_side import encode_with
from headstart.measure.bench.run import Answers
from headstart.measure.workload import Ask, ClosedLoop, Feed, OpenLoop, Prompt
from headstart.records import SamplingParams
from headstart.testing.byte_tokenizer import ByteTokenizer
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.testing.toy_engine import ALPHABET, VOCAB_SIZE, make_toy_engine
from headstart.testing.toy_trunk import ToyTrunk

PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)
LONG = SamplingParams(max_tokens=60, ignore_eos=True)


class Seconds:
    """A clock on which every look takes a second, and waiting takes as long as it says."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        self.time += 1.0
        return self.time

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


def prompt(name: str, text: str = "the same words, the same", **fields: Any) -> Prompt:
    return Prompt(id=name, category="c", messages=(("user", text),), **fields)


def side(
    drafter: object = None, clock: Seconds | None = None, *, share_prefixes: bool = False, **settings: Any
) -> EngineSide:
    trunk = ToyTrunk(VOCAB_SIZE, context_weight=0.0)
    engine = make_toy_engine(drafter, trunk=trunk, share_prefixes=share_prefixes, **settings)  # type: ignore[arg-type]
    clock = clock or Seconds()
    encode = encode_with(ByteTokenizer(ALPHABET), has_template=True)
    return EngineSide("toy", engine, trunk, Clock(clock.now, clock.wait), encode)


def answer(side: EngineSide, feed: Feed, sampled: tuple[str, ...] = (), params: SamplingParams = PARAMS) -> Answers:
    answers = side.answer(feed, lambda ask: params, sampled, lambda: False, lambda: None)
    assert answers is not None
    return answers


def asks(*names: str, **fields: Any) -> list[Ask]:
    return [Ask(prompt=prompt(name, **fields)) for name in names]


def test_requests_are_answered_and_counted() -> None:
    answers = answer(side(), Feed(asks("a", "b", "c"), ClosedLoop(2)))
    assert {request.name for request in answers.requests} == {"a", "b", "c"}
    assert {request.num_tokens for request in answers.requests} == {12}
    assert {request.finish_reason for request in answers.requests} == {"length"}
    assert len({request.token_hash for request in answers.requests}) == 1  # the same prompt
    assert all(len(request.pauses_s) == 11 and request.acceptance is not None for request in answers.requests)


def test_times_are_of_the_clock_that_is_given() -> None:
    # one look at the beginning, one before each pass, one after
    (request,) = answer(side(), Feed(asks("a"), ClosedLoop(1))).requests
    assert request.first_s == 1.0
    assert request.pauses_s == (2.0,) * 11
    assert request.end_s == request.first_s + sum(request.pauses_s)


def test_drafted_texts_are_the_plain_ones_in_fewer_passes() -> None:
    plain = answer(side(), Feed(asks("a", "b"), ClosedLoop(2)), params=LONG)
    drafted = answer(side(LookupDrafter(), policy="always"), Feed(asks("a", "b"), ClosedLoop(2)), params=LONG)
    hashes = [{request.name: request.token_hash for request in each.requests} for each in (plain, drafted)]
    assert hashes[0] == hashes[1]
    passes = [sum(tally.passes for tally in each.passes) for each in (plain, drafted)]
    assert passes[1] < passes[0]
    assert all(tally.drafted == 0 for tally in plain.passes)
    assert any(tally.drafted > 0 for tally in drafted.passes)
    assert all(tally.trunk_s > 0 for tally in (*plain.passes, *drafted.passes))


def test_passes_that_read_a_prompt_are_not_tallied() -> None:
    # of 12 tokens the first comes from the prompt's pass
    (tally,) = answer(side(), Feed(asks("a"), ClosedLoop(1))).passes
    assert (tally.sequences, tally.drafted, tally.passes, tally.tokens) == (1, 0, 11, 11)
    assert tally.seconds == 11.0


def test_a_sample_tells_what_was_guessed() -> None:
    answers = answer(side(LookupDrafter(), policy="always"), Feed(asks("a", "b"), ClosedLoop(1)), ("a",), LONG)
    sample, none = (request.sample for request in answers.requests)
    assert none == ()
    accepted = answers.requests[0].acceptance
    assert accepted is not None
    assert accepted["accepted"] > 0
    assert sum(depth > 0 for _, depth in sample) == accepted["accepted"]
    by_depth = [
        sum(depth == level for _, depth in sample) for level in range(1, len(accepted["accepted_by_depth"]) + 1)
    ]
    assert by_depth == accepted["accepted_by_depth"]


def test_follow_ups_are_asked_with_the_models_own_answer() -> None:
    answers = answer(side(), Feed(asks("a", follow_ups=("and then?",)), ClosedLoop(1)))
    first, second = answers.requests
    assert (first.name, second.name) == ("a", "a, turn 2")
    # the question, the answer with the ends that the toy's frame has, and what is said next
    assert second.prompt_tokens > first.prompt_tokens + len("and then?")


def test_an_open_loop_waits_for_who_comes_and_counts_from_the_coming() -> None:
    clock = Seconds()
    load = OpenLoop(0.001, seed=3)
    answers = answer(side(clock=clock), Feed(asks("a", "b"), load))
    (waited,) = clock.waits  # the turn begins with the first request
    assert 0 < waited < load.times_s(2)[1]
    assert all(request.first_s < 5 for request in answers.requests)


def test_it_can_be_stopped_and_used_again() -> None:
    stopped = side()
    stops = itertools.chain([False] * 4, itertools.repeat(True))
    feed = Feed(asks("a", "b"), ClosedLoop(1))
    assert stopped.answer(feed, lambda ask: PARAMS, (), lambda: next(stops), lambda: None) is None
    again = answer(stopped, Feed(asks("a"), ClosedLoop(1)))
    assert again.requests == answer(side(), Feed(asks("a"), ClosedLoop(1))).requests


def test_passes_are_timed_between_requests_without_harm() -> None:
    timed = side(max_batch=2)
    before = answer(timed, Feed(asks("a"), ClosedLoop(1))).requests[0].token_hash
    costs = timed.time_passes(2, 40)
    # one alone, then two, with 0, 1, 2, 4, 8, 16 guesses each
    assert set(costs) == {(sequences, sequences * rows) for sequences in (1, 2) for rows in (1, 2, 3, 5, 9, 17)}
    assert set(costs.values()) == {1.0}
    assert answer(timed, Feed(asks("a"), ClosedLoop(1))).requests[0].token_hash == before


def test_timing_passes_leaves_cached_prompts_as_they_are() -> None:
    timed = side(max_batch=2, share_prefixes=True, cache_tokens=16 * 16)
    before = answer(timed, Feed(asks("a", text="abc " * 30), ClosedLoop(1)), params=LONG).requests[0]
    timed.time_passes(2, 200)
    engine = timed._engine
    again = answer(timed, Feed(asks("a", text="abc " * 30), ClosedLoop(1)), params=LONG).requests[0]
    assert engine.statistics.shared_tokens >= before.prompt_tokens - 16
    assert again.token_hash == before.token_hash


@pytest.mark.parametrize(("concurrency", "temperature"), [(1, 0.0), (3, 0.0), (3, 1.0)])
def test_cached_prompts_are_never_driven_out(tmp_path: Path, concurrency: int, temperature: float) -> None:
    parts = load_parts(write_tiny_gguf(tmp_path / "tiny.gguf"), draft="none", threads=1)
    prompts = [prompt(f"p{number}", f"{number} {'words ' * 20}", follow_ups=("more",)) for number in range(4)]
    filled = FilledCell(cell=Cell(load=ClosedLoop(concurrency)), prompts=tuple(prompts), usual_tokens=100)
    settings = BenchSettings(
        sides=("none",), cells=(filled.cell,), max_tokens=24, ignore_eos=True, temperature=temperature,
        cached_prompts=True,
    )  # fmt: skip
    (made,) = make_engine_sides({"none": parts}, [filled], settings, Clock())
    engine = made._engine
    rows = []
    for _ in range(3):
        before = engine.statistics.rows
        for group in filled.groups().values():
            answers = made.answer(
                Feed(group, filled.cell.load), lambda ask: settings.params(ask.name), (), lambda: False, lambda: None
            )
            assert answers is not None
            made.time_passes(concurrency, 100)
        rows.append(engine.statistics.rows - before)
    num_requests = 2 * max(4, 2 * concurrency)  # each with its follow-up
    assert rows[1] == rows[2] <= num_requests * (16 + 24) < rows[0]  # a page is not shared if it holds the last token
    assert engine.statistics.preemptions == 0


def test_texts_without_a_template_are_joined() -> None:
    encode = encode_with(ByteTokenizer(ALPHABET), has_template=False)
    assert encode(Ask(prompt=prompt("a", "one"))) == ByteTokenizer(ALPHABET).encode("one")
    assert token_hash(encode(Ask(prompt=prompt("a", "x", raw=True)))) == token_hash(ByteTokenizer(ALPHABET).encode("x"))
