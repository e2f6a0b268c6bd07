from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from headstart.errors import ConfigError, UnsupportedError
from headstart.records import SamplingParams, Tree
from headstart.testing.drafters import BranchingDrafter, BrokenTreeDrafter
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_engine
from headstart.testing.toy_trunk import ToyTrunk

PROMPT = [3, 1, 4, 1, 5]
REJECTION = {"verification": "rejection:point-mass", "policy": "always"}


def test_rejection_at_temperature_0_is_the_plain_output():
    params = SamplingParams(max_tokens=40, ignore_eos=True, frequency_penalty=0.5)
    plain = make_toy_engine().generate(PROMPT, params)
    drafter = BranchingDrafter({tuple(PROMPT): plain.token_ids}, VOCAB_SIZE)
    drafted = make_toy_engine(drafter, **REJECTION).generate(PROMPT, params)
    assert drafted.token_ids == plain.token_ids
    assert drafted.rounds < plain.rounds


def test_rejection_writes_from_the_same_distribution():
    """Two tokens after a prompt, drafted as a tree, against the law's own probabilities."""
    allowed = (0, 1, 2)
    params = SamplingParams(max_tokens=2, temperature=1.5, allowed_tokens=allowed)
    engine = make_toy_engine(BrokenTreeDrafter(Tree((0, 1, 1, 2), (-1, 0, -1, 2), (0.5,) * 4)), **REJECTION)
    num_draws = 3000
    drawn = engine.generate_many([PROMPT] * num_draws, [replace(params, seed=seed) for seed in range(num_draws)])
    counts = Counter(completion.token_ids for completion in drawn)
    assert sum(completion.accepted for completion in drawn) > num_draws / 4

    trunk = ToyTrunk(VOCAB_SIZE)
    first = _probabilities(trunk, PROMPT, params)
    expected = {
        (a, b): first[a] * _probabilities(trunk, [*PROMPT, a], params)[b] * num_draws for a in allowed for b in allowed
    }
    assert sum(expected.values()) == pytest.approx(num_draws)
    chi_square = sum((counts[pair] - count) ** 2 / count for pair, count in expected.items())
    assert chi_square < 26.1  # 8 degrees of freedom, one false alarm in 1000; seeds are fixed


def _probabilities(trunk: ToyTrunk, text: list[int], params: SamplingParams) -> np.ndarray:
    engine = make_toy_engine(trunk=trunk, share_prefixes=False)
    engine.generate(text, SamplingParams(max_tokens=1))
    return trunk.make_chooser(params, 0, text, ()).probabilities(trunk.logits(0))


def test_what_rejection_cannot_do_is_refused():
    with pytest.raises(UnsupportedError, match="logprobs"):
        make_toy_engine(**REJECTION).submit(PROMPT, SamplingParams(logprobs=1))
    for name in ("rejection:chain", "typical"):
        with pytest.raises(ConfigError, match="verification"):
            make_toy_engine(verification=name)
