"""A model that drafts: no output changes for it, and it agrees with itself always."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.decoding.trees import is_chain
from headstart.engine import token_hash
from headstart.engine.model_drafter import ModelDraftConfig, ModelDrafter
from headstart.errors import ConfigError
from headstart.records import SamplingParams, Tree
from headstart.runtime.protocol import Rows
from headstart.testing.toy_engine import VOCAB_SIZE, make_similar_trunk, make_toy_drafter, make_toy_engine
from headstart.testing.toy_trunk import ToyTrunk

MAX_TOKENS = 30
LAWS = {
    "greedy": SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, repetition_penalty=1.2, frequency_penalty=0.2),
    "sampled": SamplingParams(
        max_tokens=MAX_TOKENS, temperature=1.0, seed=11, top_k=20, presence_penalty=0.4, min_tokens=12
    ),
}
LONG = SamplingParams(max_tokens=120, ignore_eos=True)
SAMPLED_LONG = SamplingParams(max_tokens=120, ignore_eos=True, temperature=0.9, seed=5)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def make_prompts() -> list[list[int]]:
    source = random.Random(5)
    alike = [source.randrange(VOCAB_SIZE - 1) for _ in range(40)]
    lengths = (1, 2, 15, 16, 17, 31, 33, 50)
    others = [[source.randrange(VOCAB_SIZE - 1) for _ in range(length)] for length in lengths]
    return [*others, alike, alike, [*alike[:33], 7], [*alike[:16], 8], alike[:17], [1, 2] * 9, [5], alike[::-1]]


PROMPTS = make_prompts()


class PausingDrafter(ModelDrafter):
    """Proposes nothing in two of five rounds, as if no one had asked."""

    num_calls = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        self.num_calls += 1
        return [Tree()] * len(requests) if self.num_calls % 5 in (2, 3) else super().propose(requests)


@cache
def plain_hashes(law: str) -> tuple[str, ...]:
    return tuple(
        token_hash(make_toy_engine(max_batch=1, share_prefixes=False).generate(prompt, LAWS[law]).token_ids)
        for prompt in PROMPTS
    )


def run(drafter: ModelDrafter, law: str, batch: int, **settings):
    """The hashes of the first prompts' outputs and the engine; all accounts are proved after every step."""
    engine = make_toy_engine(drafter, **settings)
    ids = [engine.submit(prompt, LAWS[law]) for prompt in PROMPTS[-batch:]]
    for _ in range(3000):
        if engine.idle:
            break
        engine.step()
        engine.check_integrity()
        drafter.check_integrity()
    assert engine.idle
    assert engine.statistics.drafter_faults == 0
    return tuple(token_hash(engine.completion(sequence_id).token_ids) for sequence_id in ids), engine


DRAFTING = {
    "usual": {},
    "small cache": {"cache_tokens": 96},
    "crawling": {"catch_up_rows": 5},
    "branches": {"branches": 3},
    "confident only": {"min_path_probability": 0.4},
    "drawn": {"coupled": False, "branches": 2},
}
SETTINGS = (
    {"batch": 1, "policy": "always"},
    {"batch": 3, "policy": "measured", "prefill_chunk": 7},
    {"batch": 16, "policy": "always", "max_nodes": 5, "max_rows": 90},
    {"batch": 16, "policy": "always", "cache_tokens": 80},  # sequences lose their pages
)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("drafting", DRAFTING)
def test_output_is_the_plain_output(law, drafting):
    drafted = accepted = 0
    for settings in SETTINGS:
        drafter = make_toy_drafter(**DRAFTING[drafting])
        hashes, engine = run(drafter, law, **settings)
        assert hashes == plain_hashes(law)[-settings["batch"] :], settings
        drafted += engine.statistics.acceptance.drafted
        accepted += engine.statistics.acceptance.accepted
        assert (engine.statistics.preemptions > 0) == ("cache_tokens" in settings)
    assert 100 < accepted < drafted


@pytest.mark.parametrize("law", LAWS)
def test_output_is_the_plain_output_when_drafting_pauses(law):
    drafter = PausingDrafter(make_similar_trunk(), vocab_size=VOCAB_SIZE, end_ids=(VOCAB_SIZE - 1,))
    hashes, engine = run(drafter, law, 16, policy="always")
    assert hashes == plain_hashes(law)
    assert engine.statistics.acceptance.accepted > 0


@pytest.mark.parametrize("params", [LONG, SAMPLED_LONG], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", [ModelDrafter, PausingDrafter])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_model_that_drafts_for_itself_is_always_right(params, kind, batch):
    small = ToyTrunk(VOCAB_SIZE)
    config = ModelDraftConfig(min_path_probability=0.0)
    drafter = kind(small, vocab_size=VOCAB_SIZE, end_ids=(VOCAB_SIZE - 1,), config=config)
    engine = make_toy_engine(drafter, policy="always", max_nodes=5)
    completions = engine.generate_many(PROMPTS[:batch], params)
    assert all(completion.accepted == completion.drafted > 50 for completion in completions)
    # no row was run twice: each known token once, but for the last, which nobody needs
    assert small.num_forward_rows <= sum(len(prompt) for prompt in PROMPTS[:batch]) + batch * 120


def test_all_sequences_share_the_pass_of_a_depth():
    small = make_similar_trunk()
    drafter = make_toy_drafter(small)
    requests = [DraftRequest(drafter.open(prompt, LONG, 0), 6, 6) for prompt in PROMPTS[:4]]
    trees = drafter.propose(requests)
    assert [len(tree) for tree in trees] == [6] * 4
    assert small.num_passes == 6


class NextPositionToy(ToyTrunk):
    """Chooses with the noise of the next position."""

    def choose(self, choices):
        return super().choose([replace(choice, position=choice.position + 1) for choice in choices])


class ForgetfulToy(ToyTrunk):
    """Counts no guesses for penalties."""

    def choose(self, choices):
        return super().choose([replace(choice, path=()) for choice in choices])


@pytest.mark.parametrize("toy", [ToyTrunk, NextPositionToy, ForgetfulToy])
def test_a_wrong_coupling_is_caught(toy):
    params = SamplingParams(max_tokens=60, ignore_eos=True, temperature=0.8, seed=3, frequency_penalty=2.0)
    completion = make_toy_engine(make_toy_drafter(toy(VOCAB_SIZE)), policy="always").generate(PROMPT, params)
    assert (completion.accepted == completion.drafted) == (toy is ToyTrunk)


def test_pausing_costs_no_acceptance():
    def drafted_and_accepted(kind):
        drafter = kind(make_similar_trunk(), vocab_size=VOCAB_SIZE, config=ModelDraftConfig(min_path_probability=0.0))
        completions = make_toy_engine(drafter, policy="always", max_nodes=1).generate_many(PROMPTS, LONG)
        return sum(c.drafted for c in completions), sum(c.accepted for c in completions)

    drafted, accepted = drafted_and_accepted(ModelDrafter)
    drafted_pausing, accepted_pausing = drafted_and_accepted(PausingDrafter)
    assert drafted_pausing < 0.8 * drafted
    assert accepted_pausing / drafted_pausing == pytest.approx(accepted / drafted, abs=0.05)


def test_what_earlier_texts_have_run_is_not_missed():
    drafter = make_toy_drafter(ToyTrunk(VOCAB_SIZE))
    slots = TrunkSlots(np.zeros(0, dtype=np.int32), (), 0)  # the trunk's cache says nothing of the drafter's own
    first = drafter.open(range(40), LONG, 0)
    assert drafter.backlog(first, slots) == 40
    drafter.propose([DraftRequest(first, 4, 4)])
    drafter.close(first)
    later = drafter.open([*range(32), 7, 8], LONG, 0)
    assert drafter.backlog(later, slots) == 2
    drafter.propose([DraftRequest(later, 4, 4)])
    assert drafter.backlog(later, slots) == 0


def test_a_likely_other_token_stands_beside_the_chain():
    drafter = make_toy_drafter(branches=2)
    (tree,) = drafter.propose([DraftRequest(drafter.open(PROMPT, LONG, 0), 5, 5)])
    assert len(tree) == 5
    assert not is_chain(tree)
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == 5
    # best first: no node that was left out is likelier than one that was taken
    (wider,) = drafter.propose([DraftRequest(drafter.open(PROMPT, LONG, 0), 9, 9)])
    assert sorted(wider.path_probabilities)[-5:] == pytest.approx(sorted(tree.path_probabilities))


def test_an_unlikely_chain_is_not_made_longer():
    def depth(least: float) -> int:
        drafter = make_toy_drafter(min_path_probability=least)
        return len(drafter.propose([DraftRequest(drafter.open(PROMPT, LONG, 0), 9, 9)])[0])

    assert depth(1.0) == 1
    assert depth(0.0) == 9
    assert 1 < depth(0.01) < 9


def test_confidence_is_learnt_for_greedy_and_sampled_text_apart():
    """A sampled token of little probability is still what the trunk chooses, by the same noise."""
    drafter = make_toy_drafter(ToyTrunk(VOCAB_SIZE), min_path_probability=0.3)
    engine = make_toy_engine(drafter, policy="always", max_nodes=8)
    lengths = [engine.generate(PROMPT, SAMPLED_LONG).mean_acceptance_length for _ in range(3)]
    assert lengths[-1] > 4.0


def test_a_shorter_context_ends_the_drafting_not_the_text():
    plain = make_toy_engine().generate(PROMPT, LONG)
    drafter = make_toy_drafter(ToyTrunk(VOCAB_SIZE, max_context=50))
    engine = make_toy_engine(drafter, policy="always")
    completion = engine.generate(PROMPT, LONG)
    assert completion.token_ids == plain.token_ids
    assert engine.statistics.drafter_faults == 0
    # the last guess that its context allows is for position 50
    assert completion.accepted == completion.drafted
    assert completion.rounds == 120 - completion.accepted
    assert 30 < completion.accepted <= 50 - len(PROMPT)
    drafter.check_integrity()


@pytest.mark.parametrize("size", [VOCAB_SIZE - 4, VOCAB_SIZE + 9])
def test_other_sizes_of_the_vocabulary_are_padding(size):
    params = SamplingParams(max_tokens=60, ignore_eos=True, temperature=1.0, seed=2, logit_bias={VOCAB_SIZE - 1: -1.0})
    plain = make_toy_engine().generate(PROMPT, params)
    for config in ({}, {"coupled": False}):
        engine = make_toy_engine(make_toy_drafter(make_similar_trunk(size), **config), policy="always")
        completion = engine.generate(PROMPT, params)
        assert completion.token_ids == plain.token_ids
        assert completion.accepted > 0
        assert engine.statistics.drafter_faults == 0


def test_a_text_with_tokens_the_drafter_does_not_have_is_decoded_plainly():
    small = make_similar_trunk(VOCAB_SIZE - 20)
    drafter = make_toy_drafter(small)
    engine = make_toy_engine(drafter, policy="always")
    for prompt, params in (
        ([VOCAB_SIZE - 3], LONG),
        (PROMPT, SamplingParams(max_tokens=20, allowed_tokens=(VOCAB_SIZE - 2, VOCAB_SIZE - 3))),
    ):
        assert engine.generate(prompt, params).token_ids == make_toy_engine().generate(prompt, params).token_ids
    assert small.num_passes == 0
    assert engine.statistics.drafter_faults == 0


@pytest.mark.parametrize("share_prefixes", [True, False])
def test_a_text_that_finds_no_room_is_not_read_again_and_again(share_prefixes):
    class CountingToy(ToyTrunk):
        num_rows = 0

        def forward(self, rows: Rows) -> None:
            self.num_rows += len(rows.tokens)
            super().forward(rows)

    trunk = CountingToy(VOCAB_SIZE)
    drafter = make_toy_drafter(trunk, cache_tokens=96, catch_up_rows=16, share_prefixes=share_prefixes)
    first, second = (drafter.open([number, *range(29), *range(30)], LONG, 0) for number in (1, 2))
    trees = [drafter.propose([DraftRequest(state, 4, 4) for state in (first, second)]) for _ in range(12)]
    assert trees[-1][0].tokens  # of the two, one is served
    assert not any(tree.tokens for _, tree in trees)
    before = trunk.num_rows
    drafter.propose([DraftRequest(state, 4, 4) for state in (first, second)])
    assert trunk.num_rows - before <= 4  # the first one's guesses
    drafter.close(first)
    assert any(drafter.propose([DraftRequest(second, 4, 4)])[0].tokens for _ in range(5))
    drafter.check_integrity()


def test_one_that_nobody_asks_for_makes_room():
    drafter = make_toy_drafter(ToyTrunk(VOCAB_SIZE), cache_tokens=96)
    first, second = (drafter.open([number, *range(29), *range(30)], LONG, 0) for number in (1, 2))
    for state in (first, second, first):
        assert drafter.propose([DraftRequest(state, 4, 4)])[0].tokens
        drafter.check_integrity()


def test_a_failing_model_leaves_the_output_alone(caplog):
    class FailingToy(ToyTrunk):
        def forward(self, rows: Rows) -> None:
            super().forward(rows)
            if self.num_passes == 9:
                raise RuntimeError("a fault, as ordered")

    plain = make_toy_engine().generate(PROMPT, LONG)
    drafter = make_toy_drafter(FailingToy(VOCAB_SIZE))
    engine = make_toy_engine(drafter, policy="always")
    assert engine.generate(PROMPT, LONG).token_ids == plain.token_ids
    assert engine.statistics.drafter_faults == 1
    drafter.check_integrity()
    assert engine.generate(PROMPT, LONG).accepted > 100  # the next one drafts again


def test_a_sequence_that_the_model_chokes_on_leaves_the_others_drafting():
    class ChokingToy(ToyTrunk):
        def choose(self, choices):
            if any(choice.path[-1:] == (7,) for choice in choices):
                raise RuntimeError("a fault, as ordered")
            return super().choose(choices)

    drafter = make_toy_drafter(ChokingToy(VOCAB_SIZE))
    engine = make_toy_engine(drafter, policy="always")
    never_7 = replace(LONG, logit_bias={7: float("-inf")})
    often_7 = replace(LONG, logit_bias={7: 2.0})
    completions = engine.generate_many([PROMPT, PROMPT, PROMPT], [never_7, often_7, never_7])
    assert engine.statistics.drafter_faults == 1
    assert completions[0].accepted == completions[2].accepted > 100
    for completion, params in zip(completions, (never_7, often_7, never_7), strict=True):
        assert completion.token_ids == make_toy_engine().generate(PROMPT, params).token_ids


def test_cancelling_frees_the_drafters_pages_too():
    drafter = make_toy_drafter()
    engine = make_toy_engine(drafter, policy="always")
    sequence_id = engine.submit(PROMPTS[-1], LONG)
    for _ in range(5):
        engine.step()
    assert drafter.num_holding == 1
    engine.cancel(sequence_id)
    assert drafter.num_holding == 0
    drafter.check_integrity()


@pytest.mark.parametrize(
    "config",
    [
        {"branches": 0},
        {"branches": 101},
        {"max_batch": 0},
        {"catch_up_rows": 0},
        {"min_path_probability": 1.5},
        {"cache_tokens": 0},
    ],
)
def test_a_setting_out_of_range_is_refused(config):
    with pytest.raises(ConfigError, match=next(iter(config))):
        make_toy_drafter(**config)
