"""Passes, rows and drafters that fail: the error stays where it happened, and plain decoding would meet it too."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from headstart.decoding.trees import chain
from headstart.engine import token_hash
from headstart.errors import HeadstartError
from headstart.records import SamplingParams
from headstart.testing.drafters import BrokenTreeDrafter, OracleDrafter, RaisingDrafter
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_engine, make_toy_oracle
from headstart.testing.toy_trunk import ToyTrunk

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
FREE = SamplingParams(max_tokens=40, ignore_eos=True)


def plain(params: SamplingParams = FREE, prompt=PROMPT):
    return make_toy_engine().generate(prompt, params)


class FaultyTrunk(ToyTrunk):
    """Raises in a pass, or gives a logit that is not a number to rows that run a certain token."""

    fail_passes = 0
    bad_token: int | None = None

    def forward(self, rows):
        if self.fail_passes:
            self.fail_passes -= 1
            raise MemoryError("as ordered")
        super().forward(rows)
        for index, row in enumerate(rows.wanted):
            if rows.tokens[row] == self.bad_token:
                self._logits[index][0] = np.nan


def test_a_pass_that_raises_is_taken_back_and_can_be_tried_again():
    trunk = FaultyTrunk(VOCAB_SIZE)
    engine = make_toy_engine(make_toy_oracle(PROMPT), trunk=trunk, policy="always")
    sequence_id = engine.submit(PROMPT, FREE)
    engine.step()
    trunk.fail_passes = 2
    for _ in range(2):
        with pytest.raises(MemoryError):
            engine.step()
        engine.check_integrity()
    while not engine.idle:
        engine.step()
    assert engine.completion(sequence_id).token_ids == plain().token_ids


def test_an_error_in_one_sequence_leaves_the_others_alone():
    trunk = FaultyTrunk(VOCAB_SIZE)
    healthy = ([7, 8], [9, 10, 11])
    texts = [plain(prompt=prompt).token_ids for prompt in healthy]
    trunk.bad_token = next(token for token in plain().token_ids[2:] if all(token not in text for text in texts))
    engine = make_toy_engine(trunk=trunk)
    ids = [engine.submit(prompt, FREE) for prompt in (healthy[0], PROMPT, healthy[1])]
    events = []
    while not engine.idle:
        events += engine.step()
        engine.check_integrity()
    assert [event.finish_reason for event in events if event.sequence_id == ids[1]][-1] == "error"
    with pytest.raises(HeadstartError, match="logit"):
        engine.completion(ids[1])
    assert [engine.completion(ids[0]).token_ids, engine.completion(ids[2]).token_ids] == texts


def test_an_error_behind_a_rejected_draft_is_none():
    tokens = plain().token_ids
    trunk = FaultyTrunk(VOCAB_SIZE)
    trunk.bad_token = next(token for token in range(VOCAB_SIZE) if token not in tokens and token not in PROMPT)
    drafter = BrokenTreeDrafter(chain([trunk.bad_token] * 3, [0.9] * 3))
    completion = make_toy_engine(drafter, trunk=trunk, policy="always").generate(PROMPT, FREE)
    assert completion.token_ids == tokens
    assert completion.drafted > 0


@pytest.mark.parametrize("method", ["open", "extend", "propose", "close"])
def test_a_drafter_that_raises_is_reported_once_and_done_without(method, caplog):
    drafter = RaisingDrafter(method)
    engine = make_toy_engine(drafter, policy="always")
    with caplog.at_level(logging.WARNING, logger="headstart"):
        completions = engine.generate_many([PROMPT, PROMPT[:4], PROMPT[:5]], FREE)
    assert [token_hash(completion.token_ids) for completion in completions] == [
        token_hash(plain(prompt=prompt).token_ids) for prompt in (PROMPT, PROMPT[:4], PROMPT[:5])
    ]
    assert engine.statistics.drafter_faults == 3
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    engine.check_integrity()


def test_only_the_sequence_that_a_drafter_chokes_on_goes_without():
    class Choking(OracleDrafter):
        def guess(self, tokens, max_nodes, max_depth):
            if tokens[0] == 7:
                raise ValueError("seven")
            return super().guess(tokens, max_nodes, max_depth)

    drafter = Choking({tuple(PROMPT): plain().token_ids})
    engine = make_toy_engine(drafter, policy="always")
    choked, served = engine.generate_many([[7, 8], PROMPT], FREE)
    assert (choked.drafted, choked.token_ids) == (0, plain(prompt=[7, 8]).token_ids)
    assert served.accepted > 20
    assert engine.statistics.drafter_faults == 1
    assert drafter.num_open == 0


@pytest.mark.parametrize("place", [2, 5])
def test_a_row_that_fails_after_the_end_of_a_text_is_no_error_of_drafting(place: int):
    """Plain decoding never comes to it, so neither does a draft that is right up to the end and beyond."""
    text = plain().token_ids
    end = text[place]
    assert end not in text[:place]
    trunk = FaultyTrunk(VOCAB_SIZE)
    trunk.bad_token = end
    engine = make_toy_engine(make_toy_oracle(PROMPT), trunk=trunk, policy="always")
    completion = engine.generate(PROMPT, replace(FREE, stop_token_ids=(end,)))
    assert completion.token_ids == plain(replace(FREE, stop_token_ids=(end,))).token_ids
    assert completion.finish_reason == "stop"
    # where the text goes on, the error is met as plain decoding meets it: after as many tokens
    sequence_id = engine.submit(PROMPT, FREE)
    events = []
    while not engine.idle:
        events += engine.step()
        engine.check_integrity()
    assert [event.finish_reason for event in events][-1] == "error"
    assert tuple(token for event in events for token in event.token_ids) == text[: place + 1]
    with pytest.raises(HeadstartError, match="logit"):
        engine.completion(sequence_id)
