"""Rejection rules through the whole engine: with drawn drafts, every text comes as often as the law says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from headstart.decoding.drafter import DraftRequest
from headstart.decoding.lookup import LookupDrafter
from headstart.decoding.trees import take
from headstart.engine.model_drafter import ModelDraftConfig, ModelDrafter
from headstart.errors import ConfigError
from headstart.records import SamplingParams, Tree
from headstart.testing.passes import prefill_logits
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_drafter, make_toy_engine
from headstart.testing.toy_trunk import ToyTrunk

SIZE = 4  # of the vocabulary
LENGTH = 3  # tokens written
PROMPT = (0, 2, 1)
NUM_DRAWS = 1500
LAWS = {
    "plain": SamplingParams(max_tokens=LENGTH, temperature=1.0),
    "penalised": SamplingParams(max_tokens=LENGTH, temperature=1.3, top_k=3, frequency_penalty=1.5, min_p=0.02),
}
# rule -> guesses for one place
RULES = {
    "rejection:chain": 1,
    "rejection:block": 1,
    "rejection:point-mass": 2,
    "rejection:without-replacement": 2,
}


@cache
def expected_counts(law: str) -> dict[tuple[int, ...], float]:
    """How often each text is to come, from the law and the logits alone."""
    trunk = ToyTrunk(SIZE)
    chances = {(): float(NUM_DRAWS)}
    for _ in range(LENGTH):
        longer = {}
        for text, chance in chances.items():
            chooser = trunk.make_chooser(LAWS[law], 0, PROMPT, ())
            distribution = chooser.probabilities(prefill_logits(trunk, [*PROMPT, *text])[-1], text)
            longer.update({(*text, token): chance * distribution[token] for token in range(SIZE)})
        chances = longer
    assert sum(chances.values()) == pytest.approx(NUM_DRAWS)
    return chances


def excess(rule: str, law: str, *, drafter: ModelDrafter | None = None, **settings) -> float:
    """How far the texts are from what is expected: chi-square less its mean, in standard deviations."""
    config = ModelDraftConfig(coupled=False, branches=RULES[rule])
    drafter = drafter or ModelDrafter(ToyTrunk(SIZE, context_weight=0.5), vocab_size=SIZE, config=config)
    settings.setdefault("policy", "always")
    engine = make_toy_engine(drafter, trunk=ToyTrunk(SIZE), verification=rule, **settings)
    drawn = engine.generate_many([PROMPT] * NUM_DRAWS, [replace(LAWS[law], seed=seed) for seed in range(NUM_DRAWS)])
    assert engine.statistics.drafter_faults == 0
    assert all(completion.verification == rule for completion in drawn)
    num_accepted, num_drafted = (sum(getattr(c, name) for c in drawn) for name in ("accepted", "drafted"))
    assert NUM_DRAWS / 3 < num_accepted < num_drafted
    counts = Counter(completion.token_ids for completion in drawn)
    expected = expected_counts(law)
    assert all(expected[text] > 0 for text in counts)
    # texts that are to come less than five times count as one
    rare = [text for text, count in expected.items() if count < 5]
    cells = [(counts[text], count) for text, count in expected.items() if count >= 5]
    cells.append((sum(counts[text] for text in rare), sum(expected[text] for text in rare)))
    chi_square = sum((seen - count) ** 2 / count for seen, count in cells if count > 0)
    freedom = sum(count > 0 for _, count in cells) - 1
    return (chi_square - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rule", RULES)
def test_texts_come_as_often_as_the_law_says(rule, law):
    # seeds are fixed; beyond 3.5 standard deviations lies about one chance in 1000
    assert excess(rule, law) < 3.5


def test_measured_drafting_keeps_the_distribution():
    assert excess("rejection:block", "plain", max_batch=3, policy="measured") < 3.5


class PeekingDrafter(ModelDrafter):
    """Leaves out the last guess if its token is even: a selection by what was drawn."""

    def propose(self, requests):
        return [
            _shorter(tree) if tree.tokens and tree.tokens[-1] % 2 == 0 else tree for tree in super().propose(requests)
        ]


def _shorter(tree: Tree) -> Tree:
    return replace(take(tree, range(len(tree) - 1)), distributions=tree.distributions[:-1])


class DishonestDrafter(ModelDrafter):
    """Reports another distribution than it draws from."""

    def propose(self, requests):
        return [
            replace(tree, distributions=np.sqrt(tree.distributions)) if tree.tokens else tree
            for tree in super().propose(requests)
        ]


@pytest.mark.parametrize("kind", [PeekingDrafter, DishonestDrafter])
def test_drafts_that_are_not_drawn_as_they_say_are_caught(kind):
    drafter = kind(ToyTrunk(SIZE, context_weight=0.5), vocab_size=SIZE, config=ModelDraftConfig(coupled=False))
    assert excess("rejection:block", "plain", drafter=drafter) > 3.5


@pytest.mark.parametrize("was_foreseen", [True, False])
def test_a_position_is_drawn_again_by_fresh_chance(was_foreseen):
    """A test of whole blocks has looked at what was drawn for it before, so the old chance must not serve twice."""
    drafter = make_toy_drafter(coupled=False)
    num_alike = 0
    for seed in range(100):
        state = drafter.open(PROMPT, SamplingParams(temperature=1000.0), seed)  # all tokens about equally likely
        (before,) = drafter.propose([DraftRequest(state, 2, 2)])
        drafter.extend(state, [before.tokens[0] if was_foreseen else (before.tokens[0] + 1) % VOCAB_SIZE])
        (after,) = drafter.propose([DraftRequest(state, 1, 1)])
        num_alike += after.tokens[0] == before.tokens[1]
        drafter.close(state)
    assert num_alike < 10


@pytest.mark.parametrize("rule", RULES)
def test_greedy_text_is_the_plain_one(rule):
    params = SamplingParams(max_tokens=40, ignore_eos=True, repetition_penalty=1.2)
    drafter = make_toy_drafter(coupled=False, branches=RULES[rule])
    completion = make_toy_engine(drafter, verification=rule, policy="always").generate(PROMPT, params)
    assert completion.token_ids == make_toy_engine().generate(PROMPT, params).token_ids
    assert completion.accepted > 5


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_writes_the_same_text(rule):
    params = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0)

    def texts(first_seed: int) -> list[tuple[int, ...]]:
        drafter = make_toy_drafter(coupled=False, branches=RULES[rule])
        engine = make_toy_engine(drafter, verification=rule, policy="always")
        laws = [replace(params, seed=first_seed + index) for index in range(5)]
        return [completion.token_ids for completion in engine.generate_many([PROMPT] * 5, laws)]

    assert texts(7) == texts(7)
    assert len(set(texts(7) + texts(100))) == 10


def test_without_drafts_every_rule_writes_plainly():
    for rule in RULES:
        completion = make_toy_engine(make_toy_drafter(coupled=False), verification=rule).generate(
            PROMPT, SamplingParams(max_tokens=1, temperature=1.0, seed=3)
        )
        assert completion.verification == rule
        assert completion.drafted == 0


def test_picked_guesses_are_judged_as_such():
    params = SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.5, seed=3)
    drafter = make_toy_drafter()  # coupled: nothing is drawn
    completion = make_toy_engine(drafter, verification="rejection:point-mass", policy="always").generate(PROMPT, params)
    assert completion.accepted > 0
    assert completion.verification == "rejection:point-mass"


@pytest.mark.parametrize("rule", ["chain", "block", "without-replacement"])
@pytest.mark.parametrize("make", [LookupDrafter, make_toy_drafter], ids=["lookup", "coupled"])
def test_a_rule_that_needs_draws_refuses_a_drafter_without(rule, make):
    with pytest.raises(ConfigError, match="coupled = False"):
        make_toy_engine(make(), verification=f"rejection:{rule}")


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_a_rule_for_chains_refuses_branches(rule):
    with pytest.raises(ConfigError, match="branches to 1"):
        make_toy_engine(make_toy_drafter(coupled=False, branches=2), verification=f"rejection:{rule}")
