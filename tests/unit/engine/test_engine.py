"""Requests in and results out: refusals, events, stops and cancellations inside drafts."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from headstart.engine import token_hash
from headstart.errors import CapacityError, ConfigError
from headstart.records import Completion, SamplingParams
from headstart.testing.byte_tokenizer import ByteTokenizer
from headstart.testing.drafters import OracleDrafter
from headstart.testing.toy_engine import ALPHABET, VOCAB_SIZE, make_toy_engine, make_toy_oracle
from headstart.testing.toy_trunk import ToyTrunk

END = VOCAB_SIZE - 1
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
FREE = SamplingParams(max_tokens=40, ignore_eos=True)


def plain(params: SamplingParams = FREE, prompt=PROMPT):
    return make_toy_engine().generate(prompt, params)


@pytest.mark.parametrize(
    ("prompt", "params", "error", "words"),
    [
        ([], FREE, ConfigError, "no tokens"),
        ("", FREE, ConfigError, "no tokens"),
        ([1, VOCAB_SIZE], FREE, ConfigError, "not in the vocabulary"),
        ([-1], FREE, ConfigError, "not in the vocabulary"),
        ([1.5], FREE, ConfigError, "list of ints"),
        ([1] * 512, FREE, CapacityError, "Shorten the prompt"),
        ([1] * 100, SamplingParams(max_tokens=200), CapacityError, "cache_tokens"),
        ([1], SamplingParams(logit_bias={VOCAB_SIZE: 1.0}), ConfigError, "logit_bias"),
        ([1], SamplingParams(stop_token_ids=(-3,)), ConfigError, "stop_token_ids"),
        ([1], SamplingParams(allowed_tokens=(1, 99)), ConfigError, "allowed_tokens"),
        ([1], SamplingParams(allowed_tokens=(1,), logit_bias={1: float("-inf")}), ConfigError, "No token"),
        ([1], SamplingParams(logit_bias=dict.fromkeys(range(VOCAB_SIZE), float("-inf"))), ConfigError, "No token"),
        ([1], SamplingParams(allowed_tokens=(END,), min_tokens=1), ConfigError, "min_tokens"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_when_it_comes(prompt, params, error, words):
    engine = make_toy_engine(cache_tokens=256)
    with pytest.raises(error, match=words):
        engine.submit(prompt, params)
    assert engine.idle
    assert engine.generate(PROMPT, FREE).token_ids == plain().token_ids
    engine.check_integrity()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_batch": 0},
        {"max_rows": 4},
        {"prefill_chunk": 0},
        {"policy": "sometimes"},
        {"max_nodes": 0},
        {"max_depth": -1},
        {"cache_tokens": 0},
    ],
)
def test_a_setting_out_of_range_is_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        make_toy_engine(**settings)


def test_numpy_prompts_and_texts_are_taken():
    assert make_toy_engine().generate(np.array(PROMPT), FREE).token_ids == plain().token_ids
    text = make_toy_engine().generate("hello", FREE)
    assert text.token_ids == plain(prompt=[ALPHABET.index(byte) for byte in b"hello"]).token_ids
    assert text.prompt_tokens == 5


def test_a_request_that_just_fits_the_cache_and_the_context_is_served():
    assert len(plain(SamplingParams(max_tokens=9, ignore_eos=True)).token_ids) == 9
    engine = make_toy_engine(cache_tokens=16)
    assert len(engine.generate(PROMPT, SamplingParams(max_tokens=9, ignore_eos=True)).token_ids) == 9  # 8 + 9 - 1 slots
    with pytest.raises(CapacityError):
        engine.submit(PROMPT, SamplingParams(max_tokens=10))


def test_the_context_ends_a_text_with_drafts_as_without():
    def run(drafter):
        engine = make_toy_engine(drafter, trunk=ToyTrunk(VOCAB_SIZE, max_context=32), policy="always")
        return engine.generate(PROMPT, FREE)

    alone, drafted = run(None), run(make_toy_oracle(PROMPT))
    assert (alone.finish_reason, len(alone.token_ids)) == ("context", 24)
    assert (drafted.finish_reason, drafted.token_ids) == ("context", alone.token_ids)
    assert drafted.rounds < alone.rounds


@pytest.mark.parametrize("place", [0, 1, 5, 16, 17, 18])
def test_a_stop_token_inside_a_draft_ends_the_text_there(place):
    tokens = plain().token_ids
    stop = tokens[place]
    first = tokens.index(stop)
    engine = make_toy_engine(make_toy_oracle(PROMPT), policy="always")
    completion = engine.generate(PROMPT, replace(FREE, stop_token_ids=(stop,)))
    assert completion.finish_reason == "stop"
    assert completion.token_ids == tokens[: first + 1]
    before = plain(replace(FREE, max_tokens=first)).text if first else ""
    assert completion.text == before
    engine.check_integrity()


@pytest.mark.parametrize("begin", range(0, 30, 3))
def test_a_stop_string_inside_a_draft_ends_text_and_tokens_there(begin):
    whole = plain()
    stop = whole.text[begin : begin + 3]
    completion = make_toy_engine(make_toy_oracle(PROMPT), policy="always").generate(PROMPT, replace(FREE, stop=(stop,)))
    alone = plain(replace(FREE, stop=(stop,)))
    assert (completion.text, completion.token_ids) == (alone.text, alone.token_ids)
    assert completion.finish_reason == alone.finish_reason == "stop"
    assert completion.text == whole.text[: whole.text.index(stop)]
    assert len(completion.token_ids) < len(whole.token_ids)


@pytest.mark.parametrize("max_tokens", [1, 2, 16, 17, 18])
def test_max_tokens_inside_a_draft(max_tokens):
    engine = make_toy_engine(make_toy_oracle(PROMPT), policy="always")
    completion = engine.generate(PROMPT, replace(FREE, max_tokens=max_tokens))
    assert completion.token_ids == plain().token_ids[:max_tokens]
    assert completion.finish_reason == "length"
    assert completion.accepted == max_tokens - completion.rounds  # no node beyond the end was given a row


def test_min_tokens_bars_end_tokens_in_every_row_of_a_draft():
    eager = SamplingParams(max_tokens=12, min_tokens=7, logit_bias={END: 100.0})
    alone = plain(eager)
    assert (len(alone.token_ids), alone.token_ids[-1]) == (8, END)
    drafter = OracleDrafter({tuple(PROMPT): alone.token_ids})
    drafted = make_toy_engine(drafter, policy="always").generate(PROMPT, eager)
    assert drafted.token_ids == alone.token_ids
    assert drafted.rounds < 4


def test_events_tell_the_same_story_as_the_completion():
    engine = make_toy_engine(make_toy_oracle(PROMPT), policy="always")
    sequence_id = engine.submit(PROMPT, replace(FREE, stop=("zz",), logprobs=1))
    events = []
    while not engine.idle:
        events += engine.step()
    completion = engine.completion(sequence_id)
    assert tuple(token for event in events for token in event.token_ids) == completion.token_ids
    assert "".join(event.text for event in events) == completion.text
    assert sum(event.num_drafted_kept for event in events) == completion.accepted
    assert tuple(entry for event in events for entry in event.logprobs) == completion.logprobs
    assert [event.finish_reason for event in events] == [None] * (len(events) - 1) + [completion.finish_reason]
    with pytest.raises(ConfigError, match="once"):
        engine.completion(sequence_id)


def completion_of_two_second_passes(monkeypatch, drafter=None, **settings):
    """Six tokens after a prompt of eight that takes two passes, by a clock on which only passes take time."""
    clock = SimpleNamespace(now=100.0)

    class SlowTrunk(ToyTrunk):
        def forward(self, rows):
            super().forward(rows)
            clock.now += 2.0

    monkeypatch.setattr("headstart.engine.engine.time", SimpleNamespace(perf_counter=lambda: clock.now))
    engine = make_toy_engine(drafter, trunk=SlowTrunk(VOCAB_SIZE), prefill_chunk=5, **settings)
    return engine.generate(PROMPT, replace(FREE, max_tokens=6, seed=9, logprobs=2))


def test_a_plain_completion_tells_all_there_is_to_tell(monkeypatch):
    tokens = plain().token_ids[:6]
    completion = completion_of_two_second_passes(monkeypatch)
    assert [len(entry.top) for entry in completion.logprobs] == [2] * 6
    assert replace(completion, logprobs=()) == Completion(
        text=ByteTokenizer(ALPHABET).decode(tokens),
        token_ids=tokens,
        finish_reason="length",
        prompt_tokens=8,
        seed=9,
        rounds=6,
        drafted=0,
        accepted=0,
        accepted_by_depth=(),
        drafted_by_depth=(),
        reached_by_depth=(),
        first_round_tokens=1,
        generation_s=10.0,
        prefill_s=4.0,
        drafter="none",
        verification="choice",
    )
    assert (completion.tokens_per_s, completion.mean_acceptance_length) == (0.5, 1.0)


def test_a_drafted_completion_tells_how_the_drafts_fared(monkeypatch):
    drafter = make_toy_oracle(PROMPT)
    completion = completion_of_two_second_passes(monkeypatch, drafter, policy="always", max_nodes=3)
    # four tokens with three guesses right, then two with the one guess for which there was room
    assert completion.token_ids == plain().token_ids[:6]
    assert (completion.rounds, completion.drafted, completion.accepted) == (2, 4, 4)
    assert completion.drafted_by_depth == completion.reached_by_depth == completion.accepted_by_depth == (2, 1, 1)
    assert (completion.prefill_s, completion.generation_s) == (4.0, 2.0)
    assert completion.first_round_tokens == 4  # which took no time of the two seconds
    assert (completion.tokens_per_s, completion.mean_acceptance_length) == (1.0, 3.0)
    assert completion.drafter == "oracle"


def test_a_fresh_seed_is_drawn_and_reported():
    sampled = replace(FREE, temperature=1.0)
    first, second = plain(sampled), plain(sampled)
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    assert plain(replace(sampled, seed=first.seed)).token_ids == first.token_ids


def test_a_completion_is_not_to_be_had_early():
    engine = make_toy_engine()
    sequence_id = engine.submit(PROMPT, FREE)
    with pytest.raises(ConfigError, match="still being written"):
        engine.completion(sequence_id)
    engine.close()
    assert engine.idle


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_cancelling_frees_everything_and_keeps_what_was_written(steps):
    engine = make_toy_engine(make_toy_oracle(PROMPT), policy="always", max_batch=1, prefill_chunk=4)
    doomed, other = engine.submit(PROMPT, FREE), engine.submit(PROMPT[:3], FREE)
    for _ in range(steps):
        engine.step()
    assert engine.cancel(doomed)
    assert not engine.cancel(doomed)
    engine.check_integrity()
    completion = engine.completion(doomed)
    assert completion.finish_reason == "cancelled"
    assert completion.token_ids == plain().token_ids[: len(completion.token_ids)]
    while not engine.idle:
        engine.step()
    assert engine.completion(other).token_ids == plain(prompt=PROMPT[:3]).token_ids
    assert engine.num_running == 0


def test_a_stream_that_is_closed_early_leaves_no_trace():
    drafter = make_toy_oracle(PROMPT)
    engine = make_toy_engine(drafter)
    other = engine.submit(PROMPT, FREE)
    stream = engine.stream(PROMPT, FREE)
    first = next(stream)
    stream.close()
    engine.check_integrity()
    assert (engine.num_running, drafter.num_open) == (1, 1)
    with pytest.raises(ConfigError):
        engine.completion(first.sequence_id)
    events = []
    while not engine.idle:
        events += engine.step()
    assert {event.sequence_id for event in events} == {other}
    assert tuple(token for event in events for token in event.token_ids) == plain().token_ids  # none was lost
    assert drafter.num_open == 0


def test_two_streams_in_turn_each_get_their_own():
    engine = make_toy_engine()
    prompts = (PROMPT, PROMPT[:2])
    streams = [engine.stream(prompt, FREE) for prompt in prompts]
    written: list[list[int]] = [[], []]
    for pair in zip(*streams, strict=False):
        for event, tokens in zip(pair, written, strict=True):
            tokens.extend(event.token_ids)
    for event in streams[1]:
        written[1].extend(event.token_ids)
    assert [tuple(tokens) for tokens in written] == [plain(prompt=prompt).token_ids for prompt in prompts]


def test_parameters_for_each_prompt():
    engine = make_toy_engine()
    short = replace(FREE, max_tokens=3)
    assert [len(c.token_ids) for c in engine.generate_many([PROMPT, PROMPT], [short, FREE])] == [3, 40]
    with pytest.raises(ConfigError, match="one for each"):
        engine.generate_many([PROMPT], [short, FREE])
    with pytest.raises(ConfigError):
        engine.generate_many([PROMPT, []], FREE)
    assert engine.idle
    engine.check_integrity()


@pytest.mark.parametrize("settings", [{"verification": "typo"}, {"max_batch": 0}, {"cache_tokens": 0}])
def test_an_engine_that_is_refused_leaves_the_one_before_at_work(settings):
    trunk = ToyTrunk(VOCAB_SIZE)
    engine = make_toy_engine(trunk=trunk)
    sequence_id = engine.submit(PROMPT, FREE)
    engine.step()
    with pytest.raises(ConfigError):
        make_toy_engine(trunk=trunk, **settings)
    while not engine.idle:
        engine.step()
    assert engine.completion(sequence_id).token_ids == plain().token_ids


def test_lent_pages_and_sequences_do_not_meet():
    engine = make_toy_engine(cache_tokens=16 * 8)
    with engine.lend_pages(8) as lent:
        assert sorted(lent) == list(range(8))
        with pytest.raises(ConfigError, match="lent"):
            engine.submit(PROMPT, FREE)
        with pytest.raises(ConfigError, match="lent once"), engine.lend_pages(0):
            pass
    engine.check_integrity()
    with pytest.raises(CapacityError, match="9 pages"), engine.lend_pages(9):
        pass
    sequence_id = engine.submit(PROMPT, FREE)
    with pytest.raises(ConfigError, match="1 sequences live"), engine.lend_pages(1):
        pass
    engine.cancel(sequence_id)
    engine.check_integrity()


def test_chat_goes_through_the_tokenizer():
    engine = make_toy_engine()
    assert engine.encode_chat([{"role": "user", "content": "ab"}]) == [0, 1, END]


def test_the_engine_is_imported_without_runtimes_and_file_formats():
    heavy = ("torch", "tokenizers", "jinja2", "headstart._native", "headstart.runtime.native", "headstart.checkpoint")
    script = f"import sys, headstart.engine; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout == "[]\n"


def test_token_hash_is_of_little_endian_int32():
    assert token_hash([1, 258]) == hashlib.sha256(b"\1\0\0\0\2\1\0\0").hexdigest()
