"""The native choice is the reference law's, token by token, on logits that are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart import _native
from headstart.decoding.law import ReferenceChooser
from headstart.errors import ConfigError, HeadstartError
from headstart.records import SamplingParams, TokenLogprobs
from headstart.runtime.native import NativeTrunk
from headstart.runtime.protocol import Choice
from headstart.testing.passes import rows_of_one
from headstart.testing.small_trunks import make_logits_trunk

INSTRUCTION_SETS = _native.instruction_sets()
Logits = NDArray[np.float32]


def trunk_with(logits: Logits, **options: Any) -> NativeTrunk:
    """A trunk that has just run rows with these logits, [V] or [T, V]."""
    rows = np.atleast_2d(logits).astype(np.float32)
    trunk = make_logits_trunk(rows, **options)
    trunk.forward(rows_of_one(range(len(rows))))
    return trunk


def choose_both(
    trunk: NativeTrunk,
    params: SamplingParams,
    *,
    seed: int = 0,
    position: int = 0,
    prompt: Sequence[int] = (),
    end_tokens: Sequence[int] = (),
    written: Sequence[int] = (),
    path: tuple[int, ...] = (),
    row: int = 0,
) -> tuple[tuple[int, TokenLogprobs | None], tuple[int, TokenLogprobs | None]]:
    """The native choice and the reference's."""
    native = trunk.make_chooser(params, seed, prompt, end_tokens)
    reference = ReferenceChooser(params, seed, prompt, end_tokens, trunk.vocab_size)
    native.extend(written)
    reference.extend(written)
    (token,), (logprobs,) = trunk.choose([Choice(row, native, position, path)])
    return (token, logprobs), reference.choose(trunk.logits(row), position, path)


def assert_same(found: tuple[int, TokenLogprobs | None], expected: tuple[int, TokenLogprobs | None]) -> None:
    assert found[0] == expected[0]
    if expected[1] is None:
        assert found[1] is None
        return
    assert found[1] is not None
    assert found[1].chosen == pytest.approx(expected[1].chosen, abs=1e-9)
    assert [token for token, _ in found[1].top] == [token for token, _ in expected[1].top]
    assert [value for _, value in found[1].top] == pytest.approx([value for _, value in expected[1].top], abs=1e-9)


def random_params(random: np.random.Generator, vocab_size: int) -> SamplingParams:
    def sometimes(value: Any, otherwise: Any) -> Any:
        return value if random.random() < 0.4 else otherwise

    def ids(count: int) -> list[int]:
        return random.integers(0, vocab_size, count).tolist()

    bias = {token: float(random.choice([-np.inf, 0.0, random.normal(0, 4)])) for token in ids(4)}
    return SamplingParams(
        temperature=sometimes(0.0, float(random.choice([0.05, 0.7, 1.0, 3.0]))),
        top_k=sometimes(int(random.integers(1, vocab_size + 5)), 0),
        top_p=sometimes(float(random.uniform(0.01, 1.0)), 1.0),
        min_p=sometimes(float(random.uniform(0.0, 0.5)), 0.0),
        repetition_penalty=sometimes(float(random.uniform(0.5, 2.0)), 1.0),
        presence_penalty=sometimes(float(random.normal()), 0.0),
        frequency_penalty=sometimes(float(random.normal()), 0.0),
        logit_bias=sometimes(bias, {}),
        allowed_tokens=sometimes(tuple(ids(1 + vocab_size // 2)), None),
        min_tokens=sometimes(int(random.integers(0, 9)), 0),
        logprobs=sometimes(int(random.integers(0, 20)), None),
    )


def random_logits(random: np.random.Generator, vocab_size: int) -> Logits:
    logits = random.normal(0, random.choice([0.1, 2.0, 10.0]), vocab_size).astype(np.float32)
    match random.integers(0, 4):
        case 0:
            logits = np.round(logits)  # full of ties
        case 1:
            logits[random.random(vocab_size) < 0.5] = -np.inf
            logits[random.integers(0, vocab_size)] = 1.0
    return logits


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize(
    ("vocab_size", "num_cases"),
    [(5, 500), (16, 200), (17, 200), (32, 200), (47, 200), (300, 300), (1023, 100), (5000, 30), (50001, 6)],
)
def test_random_laws(vocab_size: int, num_cases: int, instruction_set: str) -> None:
    random = np.random.default_rng(vocab_size)
    num_refused = 0
    for _ in range(num_cases):
        trunk = trunk_with(random_logits(random, vocab_size), instruction_set=instruction_set)
        params = random_params(random, vocab_size)

        def some(most: int) -> list[int]:
            return random.integers(0, vocab_size, random.integers(0, most)).tolist()

        case: dict[str, Any] = {
            "seed": int(random.integers(0, 1 << 64, dtype=np.uint64)),
            "position": int(random.integers(0, 1 << 20)),
            "prompt": some(12),
            "end_tokens": [*some(3), vocab_size, vocab_size + 100],  # those beyond are ignored
            "written": some(6),
            "path": tuple(some(4)),
        }
        try:
            found, expected = choose_both(trunk, params, **case)
        except ConfigError:
            num_refused += 1
            reference = ReferenceChooser(params, case["seed"], case["prompt"], case["end_tokens"], vocab_size)
            reference.extend(case["written"])
            with pytest.raises(ConfigError):
                reference.choose(trunk.logits(0), case["position"], case["path"])
            continue
        assert_same(found, expected)
    assert num_refused < num_cases / 2


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("count", [2, 3, 5, 7, 10, 16, 100])
def test_top_p_that_a_uniform_law_meets_exactly(count: int, instruction_set: str) -> None:
    """`count` equal tokens among impossible ones; kept * top_p is often a whole number."""
    random = np.random.default_rng(count)
    logits = np.full(160, -np.inf, np.float32)
    logits[random.permutation(160)[:count]] = -3.25
    trunk = trunk_with(logits, instruction_set=instruction_set)
    for kept in range(1, count + 1):
        for top_p in (kept / count, np.nextafter(kept / count, 0), min(np.nextafter(kept / count, 2), 1.0)):
            for seed in range(20):
                params = SamplingParams(temperature=1.0, top_p=float(top_p))
                assert_same(*choose_both(trunk, params, seed=seed))


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_ties_go_to_the_lowest_id(instruction_set: str, temperature: float) -> None:
    random = np.random.default_rng(0)
    for vocab_size in (5, 16, 33, 300):
        for _ in range(30):
            first, *others = sorted(random.permutation(vocab_size)[: random.integers(2, 5)].tolist())
            logits = random.normal(-5, 0.1, vocab_size).astype(np.float32)
            logits[[first, *others]] = 2.0
            # top-k of one ranks by logit and then by id, whatever the noise
            params = SamplingParams(temperature=temperature, top_k=1 if temperature else 0, logprobs=2)
            found, expected = choose_both(trunk_with(logits, instruction_set=instruction_set), params)
            assert found[0] == first
            assert_same(found, expected)


@pytest.mark.parametrize("min_p", [1.0, 0.5, 1e-6])
def test_min_p_keeps_what_is_just_likely_enough(min_p: float) -> None:
    logits = np.float32([0.0, np.log(0.5), np.log(0.5) - 1e-6, np.log(0.5) + 1e-6, 0.0])
    trunk = trunk_with(logits)
    for seed in range(200):
        assert_same(*choose_both(trunk, SamplingParams(temperature=1.0, min_p=min_p), seed=seed))


def test_noise_belongs_to_seed_position_and_token() -> None:
    """Every bit of the seed and the position counts, and a choice does not depend on earlier ones."""
    trunk = trunk_with(np.zeros(4096, np.float32))
    params = SamplingParams(temperature=1.0)
    seen = set()
    for seed in [0, *(1 << bit for bit in range(64))]:
        for position in (0, 1, 2, 1000):
            found, expected = choose_both(trunk, params, seed=seed, position=position)
            assert found == expected
            seen.add(found[0])
    assert len(seen) > 200


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_many_rows_at_once(instruction_set: str, threads: int) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 3, (30, 320)).astype(np.float32)
    trunk = trunk_with(logits, threads=threads, instruction_set=instruction_set)
    laws = [random_params(random, 320) for _ in range(6)]
    choices, expected = [], []
    for row in random.integers(0, 30, 60).tolist():  # a row may be asked more than once
        params, seed, path = laws[row % 6], row // 2, tuple(random.integers(0, 320, 3).tolist())
        choices.append(Choice(row, trunk.make_chooser(params, seed, [1, 2], [5]), row + 7, path))
        expected.append(ReferenceChooser(params, seed, [1, 2], [5], 320).choose(logits[row], row + 7, path))
    for found, wanted in zip(zip(*trunk.choose(choices), strict=True), expected, strict=True):
        assert_same(found, wanted)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("token", [0, 15, 16, 40, 46])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_an_error(instruction_set: str, value: float, token: int, temperature: float) -> None:
    logits = np.linspace(-1, 1, 47, dtype=np.float32)
    logits[token] = value
    trunk = trunk_with(logits, instruction_set=instruction_set)
    with pytest.raises(HeadstartError, match=rf"token id {token} is .*weights are damaged") as caught:
        trunk.choose([Choice(0, trunk.make_chooser(SamplingParams(temperature=temperature), 0, (), ()), 0, ())])
    assert not isinstance(caught.value, ConfigError)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("changes", "end_tokens"),
    [
        ({"logit_bias": dict.fromkeys(range(32), -np.inf)}, ()),
        ({"allowed_tokens": (3,), "logit_bias": {3: -np.inf}}, ()),
        ({"allowed_tokens": (3, 4), "min_tokens": 1}, (3, 4)),
    ],
)
def test_a_law_that_bars_everything(changes: dict[str, Any], end_tokens: tuple[int, ...], temperature: float) -> None:
    trunk = trunk_with(np.zeros(32, np.float32))
    chooser = trunk.make_chooser(SamplingParams(temperature=temperature, **changes), 0, (), end_tokens)
    with pytest.raises(ConfigError, match="No token can be chosen"):
        trunk.choose([Choice(0, chooser, 0, ())])


def test_logits_that_bar_everything() -> None:
    trunk = trunk_with(np.full(32, -np.inf, np.float32))
    for temperature in (0.0, 1.0):
        chooser = trunk.make_chooser(SamplingParams(temperature=temperature), 0, (), ())
        with pytest.raises(ConfigError, match="No token can be chosen"):
            trunk.choose([Choice(0, chooser, 0, ())])


@pytest.mark.parametrize(
    "changes", [{"temperature": 1e-310}, {"logit_bias": {3: 1.7e308, 4: 1.0}, "frequency_penalty": -1.7e308}]
)
def test_overflow_is_refused(changes: dict[str, Any]) -> None:
    trunk = trunk_with(np.full(32, 2.0, np.float32))
    chooser = trunk.make_chooser(SamplingParams(**changes), 0, (), ())
    with pytest.raises(ConfigError, match="overflow"):
        trunk.choose([Choice(0, chooser, 0, (3, 3))])


def test_one_failing_choice_of_many_leaves_the_trunk_usable() -> None:
    logits = np.zeros((8, 32), np.float32)
    logits[5, 7] = np.nan
    trunk = trunk_with(logits, threads=2)
    chooser = trunk.make_chooser(SamplingParams(), 0, (), ())
    with pytest.raises(HeadstartError, match="token id 7"):
        trunk.choose([Choice(row, chooser, 0, ()) for row in range(8)])
    assert trunk.choose([Choice(4, chooser, 0, ())]) == ([0], [None])


@pytest.mark.parametrize(
    ("params", "prompt"),
    [
        ({"logit_bias": {32: 1.0}}, ()),
        ({"logit_bias": {-1: 1.0}}, ()),
        ({"allowed_tokens": (0, 32)}, ()),
        ({"allowed_tokens": (-1,)}, ()),
        ({"repetition_penalty": 1.1}, (32,)),
        ({"repetition_penalty": 1.1}, (-1,)),
    ],
)
def test_ids_beyond_the_vocabulary_are_refused(params: dict[str, Any], prompt: tuple[int, ...]) -> None:
    trunk = trunk_with(np.zeros(32, np.float32))
    with pytest.raises(ConfigError, match=r"(32|-1) is not in the vocabulary"):
        trunk.make_chooser(SamplingParams(**params), 0, prompt, ())
