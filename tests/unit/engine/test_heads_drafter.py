"""Heads that draft: no output changes for them, and they have run each token of a text before they guess.

`ToyHeads` raise if a row is missing, was made of another text, or cannot be run yet; such a row counts as a fault.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest

from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.decoding.lookup import LookupDrafter
from headstart.engine import Engine, heads_drafter, token_hash
from headstart.engine.heads_drafter import HeadsDraftConfig, HeadsDrafter
from headstart.errors import ConfigError
from headstart.records import SamplingParams, Tree
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_engine, make_toy_heads
from headstart.testing.toy_heads import ToyHeads
from headstart.testing.toy_trunk import ToyTrunk

MAX_TOKENS = 30
LAWS = {
    "greedy": SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, repetition_penalty=1.2, frequency_penalty=0.2),
    "sampled": SamplingParams(
        max_tokens=MAX_TOKENS, temperature=1.0, seed=11, top_k=20, presence_penalty=0.4, min_tokens=12, stop=("xq",)
    ),
}
LONG = (
    SamplingParams(max_tokens=120, ignore_eos=True),
    SamplingParams(max_tokens=120, ignore_eos=True, temperature=0.9, seed=5),
)


def make_prompts() -> list[list[int]]:
    """Lengths around page borders; some are the same, or begin alike."""
    source = random.Random(5)
    alike = [source.randrange(VOCAB_SIZE - 1) for _ in range(40)]
    lengths = (1, 2, 15, 16, 17, 31, 33, 50)
    others = [[source.randrange(VOCAB_SIZE - 1) for _ in range(length)] for length in lengths]
    return [*others, alike, alike, [*alike[:33], 7], [*alike[:16], 8], alike[:17], [1, 2] * 9, [5], alike[::-1]]


PROMPTS = make_prompts()


@cache
def plain_hashes(law: str) -> tuple[str, ...]:
    return tuple(
        token_hash(make_toy_engine(max_batch=1, share_prefixes=False).generate(prompt, LAWS[law]).token_ids)
        for prompt in PROMPTS
    )


def engine_with_heads(
    kind: type[HeadsDrafter] = HeadsDrafter, *, trunk: ToyTrunk | None = None, lookup: bool = False, drafting=None,
    **settings,
) -> tuple[Engine, ToyHeads]:  # fmt: skip
    trunk = trunk or ToyTrunk(VOCAB_SIZE)
    heads = ToyHeads(trunk)
    config = HeadsDraftConfig(**drafting or {})
    drafter = kind(heads, trunk.make_chooser, end_ids=(VOCAB_SIZE - 1,), config=config)
    return make_toy_engine([LookupDrafter(), drafter] if lookup else drafter, trunk=trunk, **settings), heads


def run(engine: Engine, law: str, batch: int) -> tuple[str, ...]:
    """The hashes of the last prompts' outputs; the accounts are proved after every step."""
    ids = [engine.submit(prompt, LAWS[law]) for prompt in PROMPTS[-batch:]]
    for _ in range(3000):
        if engine.idle:
            break
        engine.step()
        engine.check_integrity()
    assert engine.idle
    return tuple(token_hash(engine.completion(sequence_id).token_ids) for sequence_id in ids)


class PausingDrafter(HeadsDrafter):
    """Is not asked in two of five rounds."""

    num_calls = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        self.num_calls += 1
        return [Tree()] * len(requests) if self.num_calls % 5 in (2, 3) else super().propose(requests)


DRAFTING = {
    "usual": {},
    "crawling": {"catch_up_rows": 5},
    "confident only": {"breadth": 1},
    "shallow": {"max_depth": 2},
}
SETTINGS = (
    {"batch": 1, "policy": "always"},
    {"batch": 3, "policy": "measured", "prefill_chunk": 7},
    {"batch": 16, "policy": "always", "max_nodes": 5, "max_rows": 90, "share_prefixes": False},
    {"batch": 16, "policy": "always", "prefill_chunk": 33},
    {"batch": 16, "policy": "measured", "cache_tokens": 80},  # sequences lose their pages
)


@pytest.mark.parametrize("lookup", [False, True], ids=["alone", "after-lookup"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("drafting", DRAFTING)
def test_output_is_the_plain_output(law, drafting, lookup):
    drafted = accepted = 0
    for given in SETTINGS if drafting == "usual" else SETTINGS[1::3]:
        batch, settings = given["batch"], {name: value for name, value in given.items() if name != "batch"}
        if drafting == "confident only":
            settings["min_confidence"] = 0.4
        engine, _ = engine_with_heads(lookup=lookup, drafting=DRAFTING[drafting], **settings)
        assert run(engine, law, batch) == plain_hashes(law)[-batch:], given
        statistics = engine.statistics
        assert statistics.drafter_faults == 0
        assert (statistics.preemptions > 0) == ("cache_tokens" in settings)
        drafted += statistics.acceptance.drafted_by_drafter["heads"]
        accepted += statistics.acceptance.accepted_by_drafter["heads"]
    assert 50 < accepted < drafted


@pytest.mark.parametrize("law", LAWS)
def test_output_is_the_plain_output_when_drafting_pauses(law):
    engine, _ = engine_with_heads(PausingDrafter, policy="always")
    assert run(engine, law, 16) == plain_hashes(law)
    assert engine.statistics.drafter_faults == 0
    assert engine.statistics.acceptance.accepted > 100


@pytest.mark.parametrize("params", LONG, ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", [HeadsDrafter, PausingDrafter])
def test_pausing_costs_no_acceptance(params, kind):
    """Heads that know the trunk's law are right in every round in which they are asked."""
    trunk = ToyTrunk(VOCAB_SIZE, context_weight=0.0)
    engine, heads = engine_with_heads(kind, trunk=trunk, drafting={"max_depth": 3, "breadth": 1}, policy="always")
    for prompt in PROMPTS[:4]:
        completion = engine.generate(prompt, params)
        assert completion.accepted_by_depth == completion.reached_by_depth
        num_asked = completion.accepted_by_depth[0]
        assert num_asked >= (0.55 if kind is PausingDrafter else 0.95) * (completion.rounds - 1)
    # every token was run once
    assert heads.num_text_rows <= sum(len(prompt) for prompt in PROMPTS[:4]) + 4 * 120


def test_plain_rounds_run_nothing():
    engine, heads = engine_with_heads(cost_curve=None, policy="measured")
    list(engine.stream(PROMPTS[4], SamplingParams(max_tokens=1)))
    assert heads.calls == []


def test_a_text_that_was_shared_or_cancelled_leaves_nothing_wrong():
    engine, _ = engine_with_heads(policy="always", max_batch=3)
    ids = [engine.submit(prompt, LAWS["greedy"]) for prompt in PROMPTS[8:] * 2]
    for step in range(400):
        if engine.idle:
            break
        engine.step()
        if step % 7 == 3 and len(ids) > 4:
            engine.cancel(ids.pop(step % len(ids)))
    assert engine.idle
    assert engine.statistics.shared_tokens > 0
    assert engine.statistics.drafter_faults == 0


def test_a_stop_string_inside_a_draft_ends_the_text_there():
    trunk = ToyTrunk(VOCAB_SIZE, context_weight=0.0)
    plain = make_toy_engine(trunk=ToyTrunk(VOCAB_SIZE, context_weight=0.0)).generate(PROMPTS[3], LONG[0])
    for begin in range(10, 16):
        params = SamplingParams(max_tokens=120, ignore_eos=True, stop=(plain.text[begin : begin + 3],))
        engine, _ = engine_with_heads(trunk=trunk, policy="always")
        stopped = engine.generate(PROMPTS[3], params)
        assert plain.text.startswith(stopped.text)
        assert stopped.token_ids == plain.token_ids[: len(stopped.token_ids)]
        assert stopped.rounds < len(stopped.token_ids)


def test_a_conversation_that_goes_on_costs_the_heads_its_new_words_only():
    engine, heads = engine_with_heads(policy="always")
    first = engine.generate(PROMPTS[7], LONG[0])
    before = heads.num_text_rows
    follow_up = [*PROMPTS[7], *first.token_ids, 3, 4, 5]
    engine.generate(follow_up, SamplingParams(max_tokens=8, ignore_eos=True))
    assert engine.statistics.drafter_faults == 0
    # the last page may not be full, and the last tokens written were never drafted from
    assert 0 < heads.num_text_rows - before <= 3 + 2 * 16 + 16


@pytest.mark.parametrize("cache_tokens", [None, 4096])
def test_a_drafter_takes_nothing_from_one_engine_to_the_next(cache_tokens):
    trunk = ToyTrunk(VOCAB_SIZE)
    drafter = make_toy_heads(ToyHeads(trunk), trunk)
    for prompt in (PROMPTS[8], PROMPTS[-1]):  # of one length, so that they lie in pages of the same numbers
        engine = make_toy_engine(drafter, trunk=trunk, policy="always", cache_tokens=cache_tokens)
        engine.generate(prompt, LONG[0])
        assert engine.statistics.drafter_faults == 0
        assert engine.statistics.acceptance.accepted > 0


@pytest.mark.parametrize("config", [{"breadth": 0}, {"breadth": 65}, {"max_depth": 0}, {"catch_up_rows": 0}])
def test_a_setting_out_of_range_is_refused(config):
    with pytest.raises(ConfigError, match=next(iter(config))):
        HeadsDraftConfig(**config)


def test_heads_that_raise_are_given_up_and_the_output_is_unchanged():
    class FailingHeads(ToyHeads):
        def draft(self, requests):
            if len(self.calls) >= 5:
                raise RuntimeError("a fault, as ordered")
            return super().draft(requests)

    trunk = ToyTrunk(VOCAB_SIZE)
    engine = make_toy_engine(make_toy_heads(FailingHeads(trunk), trunk), trunk=trunk, policy="always")
    assert run(engine, "greedy", 5) == plain_hashes("greedy")[-5:]
    assert engine.statistics.drafter_faults == 5  # once for each sequence


def pages_are_not_checked(monkeypatch):
    monkeypatch.setattr(heads_drafter._Text, "check_pages", lambda self, slots, full_pages: None)


def a_row_is_left_out(monkeypatch):
    original = heads_drafter._Text.note_run
    monkeypatch.setattr(
        heads_drafter._Text, "note_run", lambda self, num_run, slots: original(self, num_run + (num_run == 21), slots)
    )


def rows_are_run_too_early(monkeypatch):
    original = heads_drafter._parts

    def mutant(request):
        text, slots = original(request)
        return text, TrunkSlots(slots.page_table, slots.stamps, len(text.tokens))

    monkeypatch.setattr(heads_drafter, "_parts", mutant)


def only_the_last_token_is_taken_in(monkeypatch):
    original = HeadsDrafter.extend
    monkeypatch.setattr(HeadsDrafter, "extend", lambda self, state, token_ids: original(self, state, token_ids[-1:]))


@pytest.mark.parametrize(
    ("mutant", "settings"),
    [
        (pages_are_not_checked, {"cache_tokens": 80}),
        (a_row_is_left_out, {}),
        (rows_are_run_too_early, {"prefill_chunk": 7}),
        (only_the_last_token_is_taken_in, {}),
    ],
)
def test_wrong_books_are_caught(monkeypatch, caplog, mutant, settings):
    mutant(monkeypatch)
    engine, _ = engine_with_heads(policy="always", **settings)
    assert run(engine, "greedy", 10) == plain_hashes("greedy")[-10:]  # never trusted, so nothing changes
    assert engine.statistics.drafter_faults > 0
    assert "AssertionError" in caplog.text  # of the heads that prove the books


class EverySecondDrafter(HeadsDrafter):
    """Serves every second sequence."""

    num_opened = 0

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> object:
        self.num_opened += 1
        return super().open(prompt, params, seed) if self.num_opened % 2 == 0 else None


@pytest.mark.parametrize("checked", [True, False])
def test_a_page_that_was_exchanged_for_an_equal_one_has_no_rows(monkeypatch, caplog, checked):
    """Of two that write the same, the second gives its full page back for that of the first, which has no heads."""
    if not checked:
        pages_are_not_checked(monkeypatch)
    engine, _ = engine_with_heads(EverySecondDrafter, policy="always")
    first = engine.submit(PROMPTS[8], LAWS["greedy"])
    for _ in range(6):
        engine.step()
    second = engine.submit(PROMPTS[8], LAWS["greedy"])
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    assert engine.completion(first).token_ids == engine.completion(second).token_ids
    assert (engine.statistics.drafter_faults == 0) == checked == ("AssertionError" not in caplog.text)
