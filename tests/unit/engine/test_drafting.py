"""Several drafters, cheap and dear: who is asked, whose guesses get rows, and what that may cost.

Time is that of a clock which only drafters move; a pass over one row is said to take a second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.engine import Engine
from headstart.errors import ConfigError
from headstart.records import Completion, SamplingParams, Tree
from headstart.testing.drafters import OracleDrafter, TellingDrafter, WrongDrafter
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_drafter, make_toy_engine

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
OTHER = (2, 7, 1, 8, 2, 8)
PARAMS = SamplingParams(max_tokens=300, ignore_eos=True)
CURVE = CostCurve({1: 1.0, 2: 1.04, 4: 1.2, 8: 2.0, 16: 3.6, 64: 14.0})


class Clock:
    """Seconds that pass when someone says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def plain(prompt: Sequence[int] = PROMPT) -> tuple[int, ...]:
    return make_toy_engine().generate(prompt, PARAMS).token_ids


TEXTS = {PROMPT: plain(), OTHER: plain(OTHER)}


class Dear(OracleDrafter):
    """Knows the text as far as it is told to, and takes time for it: a tenth of a pass, and more for each depth.

    Attributes:
        spent: seconds that asking it took.
        asked: the length of the text at each asking.
    """

    name = "dear"

    def __init__(self, clock: Clock, *, per_depth_s: float = 0.08, confidence: float = 0.95, **ranges) -> None:
        super().__init__(TEXTS)
        self.clock, self.per_depth_s, self.confidence = clock, per_depth_s, confidence
        self.is_right = ranges.get("is_right", lambda length: True)
        self.knows = ranges.get("knows", lambda prompt: True)
        self.spent = 0.0
        self.asked: list[int] = []
        self.depths: list[int] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        trees = [self.chain(request) for request in requests]
        self.depths.append(max(len(tree) for tree in trees))
        seconds = 0.1 + self.per_depth_s * self.depths[-1]
        self.clock.now += seconds
        self.spent += seconds
        return trees

    def chain(self, request: DraftRequest) -> Tree:
        """A chain that ends where its end is not likely enough for a further depth."""
        tokens = request.state
        assert isinstance(tokens, list)
        self.asked.append(len(tokens))
        right = self.is_right(len(tokens))
        confidence = self.confidence if right else 0.3
        truth = self.guess(tokens, request.max_nodes, request.max_depth).tokens
        guessed = [token if right else (token + 1) % VOCAB_SIZE for token in truth]
        reached: list[float] = []
        for _ in guessed:
            reached.append((reached[-1] if reached else 1.0) * confidence)
            if reached[-1] < max(request.min_parent_probability, request.min_confidence):
                break
        return Tree(tuple(guessed[: len(reached)]), tuple(range(-1, len(reached) - 1)), tuple(reached))


def test_a_guess_that_its_drafter_doubts_is_not_followed_by_others(clock: Clock) -> None:
    """Chains of a drafter that is sure by 0.7 of each guess go on until 0.7 ** n is below the threshold."""
    for threshold, longest in ((0.0, 5), (0.3, 4), (0.6, 2), (0.7, 2), (0.71, 1), (1.0, 1)):
        drafter = Dear(clock, confidence=0.7)
        limits = {"policy": "always", "max_nodes": 5, "max_depth": 5, "min_confidence": threshold}
        make_toy_engine(drafter=drafter, **limits).generate(PROMPT, PARAMS)
        assert max(drafter.depths) == longest, threshold


def test_a_threshold_that_a_rule_forbids_is_refused() -> None:
    drafter = make_toy_drafter(coupled=False)
    with pytest.raises(ConfigError, match=r"min_confidence = 0\.5 has no effect with verification 'rejection:chain'"):
        make_toy_engine(drafter=drafter, verification="rejection:chain", min_confidence=0.5)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_confidence_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match="min_confidence = "):
        make_toy_engine(min_confidence=threshold)


class Cheap(OracleDrafter):
    name = "cheap"


class Silent(TellingDrafter):
    name = "silent"

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        return Tree()


def write(*drafters, prompts: Sequence[Sequence[int]] = (PROMPT,), **settings) -> tuple[Engine, list[Completion]]:
    settings.setdefault("cost_curve", CURVE)
    engine = make_toy_engine(list(drafters), **settings)
    completions = engine.generate_many(prompts, PARAMS)
    assert [completion.token_ids for completion in completions] == [TEXTS[tuple(prompt)] for prompt in prompts]
    assert engine.statistics.drafter_faults == 0
    return engine, completions


def test_a_dear_drafter_that_is_right_is_asked_all_the_time(clock):
    dear = Dear(clock)
    _, (completion,) = write(dear)
    assert len(dear.asked) > 0.95 * completion.rounds
    assert completion.mean_acceptance_length > 3


def test_a_dear_drafter_that_is_wrong_costs_little(clock):
    dear = Dear(clock, is_right=lambda length: False)
    _, (completion,) = write(dear)
    assert dear.spent < 0.03 * 300 + 3.0  # the share for probes, and what has to be lost to be known
    assert completion.accepted == 0


def test_one_that_is_right_again_is_asked_again(clock):
    dear = Dear(clock, is_right=lambda length: length > 150)
    _, (completion,) = write(dear)
    assert completion.accepted > 90  # of 150
    assert sum(length <= 150 for length in dear.asked) < 60


def test_a_new_text_is_not_judged_by_the_last_one(clock):
    dear = Dear(clock, is_right=lambda length: dear.good)
    dear.good = True
    engine, _ = write(dear)
    dear.good = False
    engine.generate(OTHER, PARAMS)
    dear.good = True
    dear.asked.clear()
    completion = engine.generate(PROMPT, PARAMS)
    assert len(dear.asked) > 0.6 * completion.rounds


def test_a_bad_text_is_no_verdict_on_the_next(clock):
    dear = Dear(clock, is_right=lambda length: dear.good)
    dear.good = False
    engine, _ = write(Silent(), dear)
    dear.good = True
    dear.asked.clear()
    completion = engine.generate(OTHER, PARAMS)
    assert len(dear.asked) > 0.8 * completion.rounds
    assert completion.mean_acceptance_length > 3


def test_one_that_is_bad_at_all_texts_costs_little_on_each(clock):
    dear = Dear(clock, is_right=lambda length: False)
    engine, _ = write(Silent(), dear)
    for _ in range(4):
        spent = dear.spent
        engine.generate(OTHER, PARAMS)
        assert dear.spent - spent < 0.03 * 300


def test_a_dear_drafter_is_left_alone_where_a_cheap_one_finds_the_same(clock):
    dear = Dear(clock)
    _, (completion,) = write(Cheap(TEXTS), dear)
    assert dear.spent < 0.05 * completion.rounds + 1.0
    assert completion.accepted_by_drafter["cheap"] > 0.95 * completion.accepted
    assert completion.drafted_by_drafter["dear"] < 10  # the first time, when no one knows what it is worth


def test_a_dear_drafter_is_asked_where_a_cheap_one_finds_nothing(clock):
    for cheap in (Silent(), WrongDrafter(TEXTS, VOCAB_SIZE)):
        dear = Dear(clock)
        _, (completion,) = write(cheap, dear)
        assert len(dear.asked) > 0.9 * completion.rounds
        assert completion.accepted_by_drafter == {cheap.name: 0, "dear": completion.accepted}
        assert completion.drafter == f"{cheap.name}+dear"


def test_it_is_asked_for_those_who_gain(clock):
    """Of two sequences one is known to the cheap drafter."""
    dear = Dear(clock)
    _, (known, unknown) = write(Cheap({PROMPT: TEXTS[PROMPT]}), dear, prompts=(PROMPT, OTHER))
    assert known.accepted_by_drafter["cheap"] > 0.9 * known.accepted
    assert unknown.accepted_by_drafter["dear"] == unknown.accepted > 100


class Reader(Dear):
    """Has to read what it missed, a twentieth of a pass for each token."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.num_read: dict[int, int] = {}

    def backlog(self, state: object, trunk_slots: TrunkSlots | None) -> int:
        return max(0, len(state) - 17 - self.num_read.get(id(state), 0))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        for request in requests:
            self.clock.now += 0.05 * self.backlog(request.state, request.trunk_slots)
            self.num_read[id(request.state)] = len(request.state)
        return super().propose(requests)


LONG = (*range(40), *range(40), *range(40), *range(40), 7)


def test_reading_a_prompt_is_an_outlay_and_no_loss(clock):
    params = SamplingParams(max_tokens=150, ignore_eos=True)
    TEXTS[LONG] = make_toy_engine().generate(LONG, params).token_ids
    dear = Reader(clock)
    engine = make_toy_engine(dear, cost_curve=CURVE)
    for num_texts in (1, 2):
        completion = engine.generate(LONG, params)
        assert completion.token_ids == TEXTS[LONG]
        assert completion.rounds < 60, num_texts
    asked = len(dear.asked)
    engine.generate((*LONG, 3), SamplingParams(max_tokens=4, ignore_eos=True))
    assert len(dear.asked) == asked  # eight passes of reading are too much for three tokens


def test_what_it_takes_to_read_is_part_of_a_probes_price(clock):
    """With eight sequences no guess pays; reading eight texts to see so again and again would cost a tenth."""
    steep = CostCurve({rows: float(rows) for rows in (1, 8, 64)})
    dear = Reader(clock)
    prompts = [PROMPT, OTHER] * 4
    engine = make_toy_engine([Silent(), dear], cost_curve=steep, max_batch=8)
    started = clock.now
    engine.generate_many([(*prompt, *range(30)) for prompt in prompts], SamplingParams(max_tokens=200, ignore_eos=True))
    assert dear.asked
    assert clock.now - started < 0.02 * 200 * 8


def test_a_dearer_depth_makes_shallower_trees(clock):
    usual = {}
    for per_depth_s in (0.01, 0.4):
        dear = Dear(clock, per_depth_s=per_depth_s, confidence=0.8, is_right=lambda length: length % 5 != 0)
        write(dear)
        usual[per_depth_s] = statistics.median(dear.depths[20:])
    assert usual[0.4] <= 2 < 4 <= usual[0.01]


def test_credit_adds_up_and_the_guesses_of_several_are_one_tree(clock):
    engine, completions = write(
        Cheap(TEXTS),
        WrongDrafter(TEXTS, VOCAB_SIZE),
        Dear(clock),
        prompts=(PROMPT, OTHER),
        policy="always",
        max_depth=4,
    )
    for completion in completions:
        assert sum(completion.drafted_by_drafter.values()) == completion.drafted
        assert sum(completion.accepted_by_drafter.values()) == completion.accepted
        assert completion.accepted_by_drafter["wrong"] == completion.drafted_by_drafter["dear"] == 0
        assert completion.accepted_by_drafter["cheap"] == completion.accepted > 100
        assert completion.drafted_by_drafter["wrong"] > 100
    counts = engine.statistics.acceptance
    assert sum(counts.drafted_by_drafter.values()) == counts.drafted == sum(each.drafted for each in completions)


def test_all_drafters_together_keep_to_the_bound(clock):
    class Contrary(OracleDrafter):
        name = "contrary"

        def propose(self, requests):
            return [replace(tree, tokens=tuple((token + 1) % VOCAB_SIZE for token in tree.tokens)) for tree in
                    super().propose(requests)]  # fmt: skip

    flat = CostCurve({1: 1.0, 512: 1.001})
    engine = make_toy_engine([Cheap(TEXTS), Contrary(TEXTS)], cost_curve=flat, max_nodes=4)
    engine.submit(PROMPT, PARAMS)
    most = 0
    while not engine.idle:
        before = engine.statistics.drafted_rows
        engine.step()
        most = max(most, engine.statistics.drafted_rows - before)
    assert most == 4


def test_one_that_raises_leaves_the_others_at_work(clock):
    class Raising(TellingDrafter):
        name = "raising"

        def propose(self, requests):
            raise RuntimeError("a fault, as ordered")

    engine = make_toy_engine([Raising(), Cheap(TEXTS)], cost_curve=CURVE)
    completion = engine.generate(PROMPT, PARAMS)
    assert completion.token_ids == TEXTS[PROMPT]
    assert engine.statistics.drafter_faults == 1
    assert completion.accepted > 100


def test_rules_that_divide_by_distributions_take_one_drafter():
    with pytest.raises(ConfigError, match=r"one drafter, and 2 came \(cheap, model\)"):
        make_toy_engine([Cheap(TEXTS), make_toy_drafter(coupled=False)], verification="rejection:chain")
    engine = make_toy_engine([Cheap(TEXTS), WrongDrafter(TEXTS, VOCAB_SIZE)], verification="rejection:point-mass")
    assert len(engine.generate(PROMPT, PARAMS).token_ids) == 300
