"""The noise of the sampling law: as defined, and as good as chance."""

import math

import numpy as np
import pytest

from headstart.decoding.law import ReferenceChooser, gumbel_noise
from headstart.records import SamplingParams


def plain_noise(seed: int, position: int, token: int) -> float:
    """The definition in Python's own integers."""
    key = (seed + 0x9E3779B97F4A7C15 * (position + 1)) % 2**64
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ (key >> 27)) * 0x94D049BB133111EB % 2**64
    key ^= key >> 31

    def mix(bits: int) -> int:
        bits = (bits ^ (bits >> 16)) * 0x85EBCA6B % 2**32
        bits = (bits ^ (bits >> 13)) * 0xC2B2AE35 % 2**32
        return bits ^ (bits >> 16)

    hashed = mix(mix((token * 0x9E3779B1 % 2**32) ^ (key % 2**32)) ^ (key >> 32))
    return -math.log(-math.log((hashed + 0.5) / 2**32))


@pytest.mark.parametrize("seed", [0, 1, 0xDEADBEEF, 2**63, 2**64 - 1])
@pytest.mark.parametrize("position", [0, 1, 4095, 2**31])
def test_noise_is_as_defined(seed, position):
    tokens = [0, 1, 2, 151_935, 2**31 - 1]

    noise = gumbel_noise(seed, position, tokens)

    assert noise.dtype == np.float64
    assert noise == pytest.approx([plain_noise(seed, position, token) for token in tokens], rel=1e-13)


def test_noise_never_changes_between_versions():
    # a seed that a user noted must give the same text tomorrow
    expected = [0.7557049249767988, 1.1777973459853586, -0.46554360761262686]

    assert gumbel_noise(7, 0, [0, 1, 2]) == pytest.approx(expected, abs=1e-12)


def test_noise_broadcasts():
    assert gumbel_noise(3, [[5], [6]], [0, 1, 2])[1, 2] == gumbel_noise(3, 6, 2)


def fits(counts, probabilities) -> bool:
    """A chi-square test at five standard deviations (Wilson and Hilferty's approximation)."""
    possible = probabilities > 0
    if counts[~possible].any():
        return False
    counts, expected = counts[possible], counts.sum() * probabilities[possible]
    degrees = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    bound = degrees * (1 - 2 / (9 * degrees) + 5 * math.sqrt(2 / (9 * degrees))) ** 3
    return bool(statistic < bound)


PROBABILITIES = np.array([0.5, 0.25, 0.15, 0.07, 0.03])


def sampled(seed, position):
    """Gumbel-argmax samples of PROBABILITIES."""
    return (np.log(PROBABILITIES) + gumbel_noise(seed, position, np.arange(5))).argmax(-1)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_frequencies_over_positions_are_the_probabilities(seed):
    drawn = sampled(seed, np.arange(100_000)[:, None])

    assert fits(np.bincount(drawn, minlength=5), PROBABILITIES)


def test_frequencies_over_seeds_are_the_probabilities():
    drawn = sampled(np.arange(100_000)[:, None], 17)

    assert fits(np.bincount(drawn, minlength=5), PROBABILITIES)


@pytest.mark.parametrize("shift", [{"seed": 1, "position": 0}, {"seed": 0, "position": 1}], ids=["seeds", "positions"])
def test_neighbours_are_independent(shift):
    positions = np.arange(100_000)[:, None]
    pairs = 5 * sampled(11, positions) + sampled(11 + shift["seed"], positions + shift["position"])

    assert fits(np.bincount(pairs, minlength=25), np.outer(PROBABILITIES, PROBABILITIES).ravel())


def test_dependent_noise_would_be_noticed():
    positions = np.arange(100_000)[:, None]
    pairs = 5 * sampled(11, positions // 2) + sampled(11, (positions + 1) // 2)

    assert not fits(np.bincount(pairs, minlength=25), np.outer(PROBABILITIES, PROBABILITIES).ravel())


def frequencies_fit(choose) -> bool:
    params = SamplingParams(temperature=0.8, top_p=0.95, repetition_penalty=1.3)
    law = ReferenceChooser(params, 5, [1], [], vocab_size=5)
    logits = np.array([1.0, 0.5, 0.4, -1.0, -4.0], np.float32)
    counts = np.bincount([choose(law, logits, position) for position in range(10_000)], minlength=5)
    return fits(counts, law.probabilities(logits))


def test_chosen_frequencies_are_the_laws_probabilities():
    assert frequencies_fit(lambda law, logits, position: law.choose(logits, position)[0])


def test_an_argmax_where_sampling_was_asked_for_would_be_noticed():
    assert not frequencies_fit(lambda law, logits, position: int(law.adjusted_logits(logits).argmax()))


def test_noise_that_ignores_the_position_would_be_noticed():
    assert not frequencies_fit(lambda law, logits, position: law.choose(logits, 0)[0])
