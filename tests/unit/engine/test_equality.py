"""The promise of the engine: whatever is drafted, batched, chunked or shared, the tokens are those of plain decoding.

The same check then meets engines that were made wrong on purpose, and must reject each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from headstart.decoding.lookup import LookupDrafter
from headstart.engine import passes, token_hash
from headstart.engine.cache import PageAccounts
from headstart.engine.sequence import Sequence
from headstart.records import SamplingParams
from headstart.testing.drafters import (
    BROKEN_TREES,
    BranchingDrafter,
    BrokenTreeDrafter,
    OracleDrafter,
    RaisingDrafter,
    RandomTreeDrafter,
    WrongDrafter,
)
from headstart.testing.toy_engine import VOCAB_SIZE, decode_without_engine, make_toy_engine
from headstart.testing.toy_trunk import ToyTrunk
from headstart.testing.wrong_engines import first_guess_is_always_kept, noise_is_that_of_the_round

MAX_TOKENS = 30
LAWS = {
    "greedy": SamplingParams(max_tokens=MAX_TOKENS),
    "greedy-penalised": SamplingParams(
        max_tokens=MAX_TOKENS, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, min_tokens=9
    ),
    "sampled": SamplingParams(max_tokens=MAX_TOKENS, temperature=1.0, seed=11, ignore_eos=True),
    "sampled-filtered": SamplingParams(
        max_tokens=MAX_TOKENS, temperature=0.8, top_k=12, top_p=0.95, min_p=0.01, repetition_penalty=1.1,
        frequency_penalty=1.5, logit_bias={3: 1.0, 4: -2.0}, min_tokens=12, seed=12,
    ),
}  # fmt: skip
# batch, and ways of the engine that must not matter
SETTINGS = (
    {"batch": 1, "policy": "always", "prefill_chunk": 256, "share_prefixes": True},
    {"batch": 1, "policy": "measured", "prefill_chunk": 5, "share_prefixes": False},
    {"batch": 3, "policy": "always", "prefill_chunk": 7, "share_prefixes": True, "max_nodes": 4},
    {"batch": 3, "policy": "measured", "prefill_chunk": 1, "share_prefixes": True},
    {"batch": 16, "policy": "always", "prefill_chunk": 33, "share_prefixes": False, "max_rows": 60},
    {"batch": 16, "policy": "measured", "prefill_chunk": 16, "share_prefixes": True, "max_batch": 5},
)


def make_prompts() -> list[list[int]]:
    """Lengths around page borders; some begin alike over one page or several."""
    source = random.Random(5)
    long = [source.randrange(VOCAB_SIZE - 1) for _ in range(60)]
    lengths = (1, 2, 15, 16, 17, 32, 33, 50)
    own = [[source.randrange(VOCAB_SIZE - 1) for _ in range(length)] for length in lengths]
    return [
        *own[:4],
        long[:40],
        long[:40],
        [*long[:33], 7],
        [*long[:16], 8],
        *own[4:],
        long[:49],
        long,
        [1, 2] * 9,
        [5],
    ]


PROMPTS = make_prompts()


@cache
def plain_outputs(law: str) -> tuple[tuple[int, ...], ...]:
    """What each prompt yields alone, undrafted, unshared."""
    outputs = []
    for prompt in PROMPTS:
        engine = make_toy_engine(max_batch=1, share_prefixes=False)
        outputs.append(engine.generate(prompt, LAWS[law]).token_ids)
    return tuple(outputs)


def truth(law: str) -> dict[tuple[int, ...], tuple[int, ...]]:
    return dict(zip((tuple(prompt) for prompt in PROMPTS), plain_outputs(law), strict=True))


DRAFTERS: dict[str, Callable[[str], object]] = {
    "none": lambda law: None,
    "lookup": lambda law: LookupDrafter(),
    "oracle": lambda law: OracleDrafter(truth(law)),
    "wrong": lambda law: WrongDrafter(truth(law), VOCAB_SIZE),
    "branching": lambda law: BranchingDrafter(truth(law), VOCAB_SIZE),
    "random-tree": lambda law: RandomTreeDrafter(VOCAB_SIZE, seed=3),
    **{
        name: lambda law, make=make: BrokenTreeDrafter(make(VOCAB_SIZE))  # type: ignore[misc]
        for name, make in BROKEN_TREES.items()
    },
    **{
        f"raising-{method}": lambda law, method=method: RaisingDrafter(method, call=4)  # type: ignore[misc]
        for method in ("open", "extend", "propose", "close")
    },
}


def outputs(drafter: object, law: str, *, batch: int, max_steps: int = 3000, **settings) -> list[str]:
    """Hashes of the first `batch` prompts' tokens; the accounts are proved after every step."""
    engine = make_toy_engine(drafter, **settings)
    ids = [engine.submit(prompt, LAWS[law]) for prompt in PROMPTS[-batch:]]
    for _ in range(max_steps):
        if engine.idle:
            break
        engine.step()
        engine.check_integrity()
    assert engine.idle, "the engine does not come to an end"
    assert engine.num_running == engine.num_waiting == 0
    assert isinstance(drafter, RaisingDrafter) or engine.statistics.drafter_faults == 0
    return [token_hash(engine.completion(sequence_id).token_ids) for sequence_id in ids]


def expected(law: str, batch: int) -> list[str]:
    return [token_hash(output) for output in plain_outputs(law)[-batch:]]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_output_is_the_plain_output(drafter, law):
    usual = drafter in ("none", "lookup", "oracle", "wrong", "branching", "random-tree")
    for settings in SETTINGS if usual else SETTINGS[2:5:2]:
        assert outputs(DRAFTERS[drafter](law), law, **settings) == expected(law, settings["batch"]), settings


@pytest.mark.parametrize("law", ["greedy", "sampled-filtered"])
def test_plain_output_is_that_of_a_loop_without_cache(law):
    params = replace(LAWS[law], min_tokens=MAX_TOKENS, ignore_eos=False)  # so that the law never ends the text
    params = replace(params, logit_bias={**params.logit_bias, VOCAB_SIZE - 1: float("-inf")})
    for prompt in PROMPTS[:6]:
        written = make_toy_engine().generate(prompt, params).token_ids
        assert list(written) == decode_without_engine(
            ToyTrunk(VOCAB_SIZE), prompt, params, params.seed or 0, MAX_TOKENS
        )


def test_drafts_pay_where_they_can_and_the_figures_agree():
    completion = make_toy_engine(OracleDrafter(truth("greedy"))).generate(PROMPTS[-1], LAWS["greedy"])
    assert completion.rounds < 6
    assert completion.accepted == len(completion.token_ids) - completion.rounds
    assert sum(completion.accepted_by_depth) == completion.accepted
    assert completion.mean_acceptance_length == len(completion.token_ids) / completion.rounds
    assert completion.drafter == "oracle"


def test_a_drafter_that_is_never_right_is_soon_not_given_rows():
    params = SamplingParams(max_tokens=300, ignore_eos=True)
    plain = make_toy_engine().generate(PROMPTS[4], params)
    drafter = WrongDrafter({tuple(PROMPTS[4]): plain.token_ids}, VOCAB_SIZE)
    engine = make_toy_engine(drafter, cost_curve=None, max_nodes=8)
    completion = engine.generate(PROMPTS[4], params)
    assert completion.token_ids == plain.token_ids
    assert completion.accepted == 0
    assert completion.drafted < 300  # of 8 * 300


@pytest.mark.parametrize("drafter", ["none", "branching", "random-tree"])
@pytest.mark.parametrize("law", ["greedy-penalised", "sampled-filtered"])
@pytest.mark.parametrize("share_prefixes", [True, False])
def test_sequences_that_lose_their_pages_write_the_same(drafter, law, share_prefixes):
    engine = make_toy_engine(DRAFTERS[drafter](law), cache_tokens=96, policy="always", share_prefixes=share_prefixes)
    completions = engine.generate_many(PROMPTS, LAWS[law])
    assert engine.statistics.preemptions > 0
    assert [token_hash(completion.token_ids) for completion in completions] == expected(law, len(PROMPTS))


def test_shared_prefixes_are_not_run_again():
    engine = make_toy_engine()
    first = engine.generate(PROMPTS[4], LAWS["greedy"])
    rows = engine.statistics.rows
    second = engine.generate(PROMPTS[5], LAWS["greedy"])
    assert second.token_ids == first.token_ids
    assert engine.statistics.shared_tokens == 32
    assert engine.statistics.rows - rows == rows - 32


def test_log_probabilities_do_not_depend_on_drafts():
    params = replace(LAWS["sampled-filtered"], logprobs=3)
    plain = make_toy_engine().generate(PROMPTS[4], params)
    drafted = make_toy_engine(OracleDrafter(truth("sampled-filtered")), policy="always").generate(PROMPTS[4], params)
    assert drafted.rounds < plain.rounds
    assert len(plain.logprobs) == len(plain.token_ids)
    assert drafted.logprobs == plain.logprobs
    assert all(entry.chosen < 0 and len(entry.top) == 3 for entry in plain.logprobs)


def rollback_leaves_a_row(monkeypatch):
    original = passes.build_pass

    def mutant(rounds):
        passed = original(rounds)
        for index, round_ in enumerate(rounds):
            statistics = round_.sequence.statistics
            end = passed.rows.committed[index] + round_.num_tokens + len(round_.tree)
            # a rejected row lies behind the committed ones; show it where there is room
            if statistics.drafted > statistics.accepted and end < 16 * len(passed.rows.page_tables[index]):
                passed.rows.committed[index] += 1
        return passed

    monkeypatch.setattr("headstart.engine.engine.build_pass", mutant)


def commit_one_too_many(monkeypatch):
    original = PageAccounts.commit

    def mutant(self, table, num_slots, tokens):
        original(self, table, num_slots, tokens)
        if num_slots > 3 and table.committed < 16 * len(table.pages):
            table.committed += 1

    monkeypatch.setattr(PageAccounts, "commit", mutant)


def positions_run_ahead_after_a_rejection(monkeypatch):
    original = passes.build_pass

    def mutant(rounds):
        passed = original(rounds)
        for row, index in enumerate(passed.rows.sequences):
            statistics = rounds[index].sequence.statistics
            passed.rows.positions[row] += statistics.drafted > statistics.accepted
        return passed

    monkeypatch.setattr("headstart.engine.engine.build_pass", mutant)


def rejected_tokens_count_for_penalties(monkeypatch):
    original = Sequence.record_round

    def mutant(self, tree, num_kept, num_tokens, now):
        original(self, tree, num_kept, num_tokens, now)
        self.chooser.extend(tree.tokens[num_kept:])

    monkeypatch.setattr(Sequence, "record_round", mutant)


def path_does_not_count_for_penalties(monkeypatch):
    original = passes.build_pass

    def mutant(rounds):
        passed = original(rounds)
        return replace(passed, choices=[[replace(choice, path=()) for choice in own] for own in passed.choices])

    monkeypatch.setattr("headstart.engine.engine.build_pass", mutant)


def kept_rows_are_not_moved(monkeypatch):
    monkeypatch.setattr(ToyTrunk, "move", lambda self, page_table, sources, destinations: None)


def parents_are_the_rows_before(monkeypatch):
    original = passes.build_pass

    def mutant(rounds):
        passed = original(rounds)
        inside = passed.rows.parents >= 0
        passed.rows.parents[inside] = [row - 1 for row in range(len(inside)) if inside[row]]
        return passed

    monkeypatch.setattr("headstart.engine.engine.build_pass", mutant)


MUTANTS = (
    rollback_leaves_a_row,
    commit_one_too_many,
    positions_run_ahead_after_a_rejection,
    rejected_tokens_count_for_penalties,
    path_does_not_count_for_penalties,
    kept_rows_are_not_moved,
    first_guess_is_always_kept,
    noise_is_that_of_the_round,
    parents_are_the_rows_before,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_engine_is_caught(monkeypatch, mutant):
    law = "sampled-filtered"
    right, drafter = expected(law, 16), DRAFTERS["branching"](law)
    mutant(monkeypatch)
    try:
        wrong = outputs(drafter, law, max_steps=300, **SETTINGS[4])
    except AssertionError:
        return  # an invariant saw it before the output did
    assert wrong != right
