"""A trunk has one cache: an engine that lost it stops, it does not write nonsense."""

from __future__ import annotations

import gc
import weakref

import pytest

from headstart.engine.model_drafter import ModelDrafter
from headstart.errors import ConfigError
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_engine
from headstart.testing.toy_trunk import ToyTrunk

PROMPT = [1, 2, 3] * 20


def test_an_engine_whose_cache_was_taken_says_so() -> None:
    trunk = ToyTrunk(VOCAB_SIZE)
    earlier = make_toy_engine(trunk=trunk)
    written = earlier.generate(PROMPT)
    later = make_toy_engine(trunk=trunk)
    later.generate([4] * 50)
    with pytest.raises(ConfigError, match="one at a time"):
        earlier.generate(PROMPT)  # its prefix index would find pages that hold another text now
    earlier.close()
    assert earlier.idle
    assert later.generate(PROMPT).token_ids == written.token_ids


def test_a_model_cannot_draft_for_itself_in_one_cache() -> None:
    truth = make_toy_engine().generate(PROMPT)
    trunk = ToyTrunk(VOCAB_SIZE)
    engine = make_toy_engine(trunk=trunk, drafter=ModelDrafter(trunk, vocab_size=VOCAB_SIZE), policy="always")
    assert engine.generate(PROMPT).token_ids == truth.token_ids
    assert engine.statistics.drafter_faults == 1


def test_a_claim_keeps_no_trunk_alive() -> None:
    trunk = ToyTrunk(VOCAB_SIZE)
    engine, watched = make_toy_engine(trunk=trunk), weakref.ref(trunk)
    del engine, trunk
    gc.collect()
    assert watched() is None
