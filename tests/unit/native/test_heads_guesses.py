"""From a row of a head's logits to guesses: the likeliest, and those in step with the trunk's sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart import _native
from headstart.architectures.heads import HeadsConfig
from headstart.checkpoint import Checkpoint
from headstart.decoding.law import gumbel_noise, keep_likeliest
from headstart.records import SamplingParams, Tree
from headstart.runtime.heads_protocol import HeadsRequest
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.runtime.native_heads import NativeHeads, load_heads
from headstart.runtime.protocol import Choice
from headstart.testing.passes import rows_of_one
from headstart.testing.small_trunks import make_logits_trunk
from headstart.testing.tiny_heads import random_heads

GetCheckpoint = Callable[..., Checkpoint]
INSTRUCTION_SETS = _native.instruction_sets()
ROOT = 4
"""Position of the root in these tests, so that guesses are of position 5."""


def guess(
    logits: NDArray[np.float32],
    most: int,
    *,
    params: SamplingParams | None = None,
    seed: int = 0,
    instruction_set: str = "",
) -> Tree:
    """What a head with these logits [V] guesses."""
    trunk = make_logits_trunk(np.zeros((1, len(logits)), np.float32), instruction_set=instruction_set)
    stage = _native.Program.beside(trunk.native)
    zeros = np.zeros(len(logits) * 32 * 4, np.uint8)
    nothing = stage.add_matrix("F32", "", len(logits), 32, zeros, None)
    x, selected, out = (
        stage.add_register(width, wanted) for width, wanted in ((32, False), (32, True), (len(logits), True))
    )
    stage.embed(x, nothing)
    stage.select(selected, x)
    stage.linear(selected, [(nothing, out, stage.add_vector(logits), False)])
    stage.finish(
        logits=out, inverse_frequencies=[1.0] * 8, rotary_factor=1.0, num_layers=0, num_kv_heads=1, head_dim=16,
        half_cache=False, max_context=64,
    )  # fmt: skip
    native = _native.Heads(trunk=trunk.native, stages=[(stage, 0, -1, False)], recurrent=False, vocabulary=[])
    wish = HeadsRequest(
        page_table=np.arange(4, dtype=np.int32),
        first=ROOT,
        tokens=np.zeros(1, np.int32),
        chooser=None if params is None else trunk.make_chooser(params, seed, [], []),
        max_nodes=most,
    )
    (tree,) = NativeHeads(native, [stage.weight_bytes], follows_text=False, recurrent=False).draft([wish])
    assert set(tree.parents) <= {-1}
    return tree


def random_logits(random: np.random.Generator, size: int) -> NDArray[np.float32]:
    logits = random.normal(0, random.choice([0.1, 2.0, 10.0]), size).astype(np.float32)
    match random.integers(0, 3):
        case 0:
            logits = np.round(logits)  # full of ties
        case 1:
            logits[random.random(size) < 0.7] = -np.inf
            logits[random.integers(0, size)] = 1.0
    return logits


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("size", [1, 5, 16, 17, 300, 1024, 1039, 5000, 50001])
def test_the_likeliest(size: int, instruction_set: str) -> None:
    random = np.random.default_rng(size)
    for most in (1, 2, 15, 16, 17, 40, 64):
        logits = random_logits(random, size)
        found = guess(logits, most, instruction_set=instruction_set)
        expected = np.lexsort((np.arange(size), -logits))[:most]
        assert list(found.tokens) == expected.tolist()
        wide = logits.astype(np.float64)
        shares = np.exp(wide - wide.max()) / np.exp(wide - wide.max()).sum()
        np.testing.assert_allclose(found.path_probabilities, shares[expected], rtol=1e-5, atol=1e-30)
        assert found == guess(logits, most)  # to the bit, on whatever runs first


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 7, 299, 1023, 1030])
def test_a_broken_head_guesses_nothing(bad: float, at: int) -> None:
    logits = np.random.default_rng(0).normal(size=1039).astype(np.float32)
    logits[at] = bad
    assert len(guess(logits, 5)) == 0
    assert len(guess(logits, 5, params=SamplingParams(temperature=1.0))) == 0
    assert len(guess(np.full(20, -np.inf, np.float32), 5)) == 0


@pytest.mark.parametrize(
    "laws", [{}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}, {"top_k": 3, "top_p": 0.5}], ids=str
)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_temperature_that_logits_overflow_by_guesses_nothing(laws: dict[str, float], sign: float) -> None:
    logits = (sign * (3.0 + np.random.default_rng(0).random(300))).astype(np.float32)
    assert len(guess(logits, 5, params=SamplingParams(temperature=1e-310, **laws))) == 0
    assert len(guess(logits, 5, params=SamplingParams(temperature=1e-30, **laws))) > 0


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_coupled_guesses_are_the_laws_noisy_best(instruction_set: str) -> None:
    random = np.random.default_rng(1)
    for seed in range(60):
        logits = random.normal(0, 3, 700).astype(np.float32)
        params = SamplingParams(
            temperature=float(random.choice([0.3, 1.0, 1.7])),
            top_k=int(random.choice([0, 1, 7, 64])),
            top_p=float(random.choice([0.3, 0.9, 1.0])),
            min_p=float(random.choice([0.0, 0.05])),
        )
        found = guess(logits, 6, params=params, seed=seed, instruction_set=instruction_set)
        scaled = logits.astype(np.float64) / params.temperature
        kept = keep_likeliest(scaled, params.top_k, params.top_p, params.min_p)
        scores = kept + gumbel_noise(seed, ROOT + 1, np.arange(len(logits)))
        scores[np.argsort(-logits, kind="stable")[64:]] = -np.inf  # only so many are looked at
        order = np.argsort(-scores, kind="stable")[:6]
        order = order[scores[order] > -np.inf]
        assert list(found.tokens) == order.tolist()
        shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        np.testing.assert_allclose(found.path_probabilities, shares[order], rtol=1e-6)


def equal_to_the_trunk(trunk: NativeTrunk) -> HeadsConfig:
    """A medusa head that adds nothing to the trunk's hidden, when its weights are zeros."""
    last = trunk.config.num_layers
    return HeadsConfig(
        kind="medusa", depth=1, taps=(last,), hidden_stage="post_norm", intermediate_size=32,
        draft_vocab_size=trunk.vocab_size,
    )  # fmt: skip


def test_a_head_that_equals_the_trunk_guesses_its_choice(tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="Q8_0")
    trunk = load_trunk(checkpoint, taps=(2,), cache="f32", threads=2)
    trunk.make_cache(2)
    config = equal_to_the_trunk(trunk)
    weights = {name: 0 * values for name, values in random_heads(config, trunk.config).items()}
    # the same tokens in another order: the noise must be that of the trunk's ids
    vocabulary = np.random.default_rng(8).permutation(trunk.vocab_size).astype(np.int32)
    heads = load_heads(trunk, checkpoint, config, weights, vocabulary)
    random = np.random.default_rng(2)
    pages = np.arange(2, dtype=np.int32)
    chosen_tokens = set()
    for seed in range(80):
        text = random.integers(0, 300, ROOT + 1).astype(np.int32)
        trunk.forward(rows_of_one(text.tolist()))
        options: dict[str, Any] = [
            {}, {"temperature": 0.8, "top_k": 40}, {"temperature": 1.5, "top_k": 64, "top_p": 0.9, "min_p": 0.01},
            {"temperature": 0.5, "top_p": 0.6},
        ][seed % 4]  # fmt: skip
        chooser = trunk.make_chooser(SamplingParams(**options), seed, [], [])
        # the head's row of the root knows the token before it, and so has the trunk's logits of that row
        (chosen,), _ = trunk.choose([Choice(ROOT - 1, chooser, ROOT + 1, ())])
        (tree,) = heads.draft(
            [HeadsRequest(page_table=pages, first=ROOT, tokens=text[-1:], chooser=chooser, max_nodes=4, max_depth=1)]
        )
        assert tree.tokens[0] == chosen
        chosen_tokens.add(chosen)
    assert len(chosen_tokens) > 20
