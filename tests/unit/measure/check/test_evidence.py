"""The bets: they hardly ever win against what is right, and soon against what is not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from headstart.measure.check.evidence import (
    LawEvidence,
    NearMissEvidence,
    PairEvidence,
    RepeatEvidence,
    ToldEvidence,
    log_mean_exp,
)

NEEDED = math.log(1000.0)
NUM_RUNS = 40
LOGITS = np.array([2.0, 1.5, 1.0, 0.0, -1.0, -3.0])
LAW = LOGITS - np.log(np.exp(LOGITS).sum())
Draw = Callable[[np.random.Generator], int]


def drawn_with(probabilities: np.ndarray) -> Draw:
    return lambda source: int(source.choice(len(probabilities), p=probabilities))


RIGHT = drawn_with(np.exp(LAW))
WRONG = {
    "argmax": lambda source: 0,
    "sharper": drawn_with(np.exp(2 * LAW) / np.exp(2 * LAW).sum()),
    "flatter": drawn_with(np.exp(0.5 * LAW) / np.exp(0.5 * LAW).sum()),
    "ranks exchanged": drawn_with(np.exp(LAW)[[1, 2, 0, 3, 4, 5]]),
    "one token never": drawn_with(np.array([0.0, *np.exp(LAW[1:])]) / np.exp(LAW[1:]).sum()),
}


def highest_evidence(draw: Draw, seed: int, num_draws: int = 300, deviation: float = 0.0) -> float:
    """The highest that the evidence ever was: it may be watched all the time."""
    evidence, source = LawEvidence(seed), np.random.default_rng(seed)
    highest = -math.inf
    for _ in range(num_draws):
        evidence.add("same place", LAW, draw(source), deviation=deviation)
        highest = max(highest, evidence.log_evidence)
    return highest


def test_right_draws_hardly_ever_look_wrong():
    reached = [math.exp(highest_evidence(RIGHT, seed)) for seed in range(NUM_RUNS)]
    # Ville: more than 20 with probability 1/20 at most
    assert sum(value >= 20.0 for value in reached) <= 7
    assert max(reached) < math.exp(NEEDED)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_draws_are_found(wrong):
    assert all(highest_evidence(WRONG[wrong], seed) > NEEDED for seed in range(5))


def test_each_factor_is_one_on_average():
    before = LawEvidence(seed=1)
    for token in (0, 0, 3):
        before.add("place", LAW, token)
    expected = 0.0
    for token in range(len(LAW)):
        for seed in range(200):  # the rank's bet draws where the token lies in its bin
            evidence = LawEvidence(seed=seed)
            for earlier in (0, 0, 3):
                evidence.add("place", LAW, earlier)
            start = evidence.log_evidence
            evidence.add("place", LAW, token)
            expected += math.exp(LAW[token] + evidence.log_evidence - start) / 200
    assert expected == pytest.approx(1.0, abs=0.02)


def test_rounding_is_taken_off_the_bets():
    assert highest_evidence(WRONG["sharper"], 0, deviation=0.5) < highest_evidence(WRONG["sharper"], 0)


def test_a_token_that_can_never_come_is_found_at_once():
    impossible = np.array([0.0, -np.inf])
    evidence = LawEvidence()
    evidence.add("place", impossible, 1)
    assert NEEDED < evidence.log_evidence < math.inf


def told_evidence(draw: Draw, seed: int, num_draws: int = 300) -> float:
    """Of draws from what a server tells: three tokens by name, and the rest together."""
    evidence, source = ToldEvidence(3), np.random.default_rng(seed)
    shares = np.exp(LAW)
    for number in range(num_draws):
        evidence.add([*shares[:3], shares[3:].sum()], draw(source), number % 3)
    return evidence.log_evidence


def test_draws_that_are_as_the_server_tells_are_no_evidence():
    assert sum(told_evidence(RIGHT, seed) >= math.log(20.0) for seed in range(NUM_RUNS)) <= 7


@pytest.mark.parametrize("wrong", ["argmax", "sharper", "flatter", "ranks exchanged"])
def test_draws_that_are_not_as_the_server_tells_are_found(wrong):
    assert all(told_evidence(WRONG[wrong], seed) > NEEDED for seed in range(5))


def guesses_evidence(bias: float, num_draws: int = 150) -> float:
    """Draws in which one token, another each time, comes more or less often than it should."""
    evidence, source = LawEvidence(), np.random.default_rng(1)
    for number in range(num_draws):
        guess = number % 3
        share = np.exp(LAW)
        share[guess] *= bias
        evidence.add(number, LAW, int(source.choice(len(LAW), p=share / share.sum())), guess=guess)
    return evidence.log_evidence


def test_guesses_that_are_kept_too_often_or_too_seldom_are_found():
    assert guesses_evidence(3.0) > NEEDED
    assert guesses_evidence(0.25) > NEEDED
    assert guesses_evidence(1.0) < math.log(20.0)


def test_a_step_of_coarse_logits_is_no_near_miss():
    stepped, fine = NearMissEvidence(0.01, step=0.25), NearMissEvidence(0.01)
    for evidence in (stepped, fine):
        for _ in range(12):
            evidence.add(np.array([0.25]), True)
    assert stepped.log_evidence <= 0.0
    assert fine.log_evidence > NEEDED


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (0.15, True)])
def test_near_misses_are_found_by_their_number(share, found):
    source = np.random.default_rng(0)
    scale = 0.01
    evidence = NearMissEvidence(scale)
    for _ in range(300):
        margins = source.exponential(0.5, 3)
        by_rounding = margins.min() < source.laplace(0.0, scale)
        evidence.add(margins, bool(by_rounding or (margins.min() < 0.5 and source.random() < share)))
    assert (evidence.log_evidence > NEEDED) is found


def pair_evidence(draw: Draw, seed: int, num_pairs: int = 300) -> float:
    evidence, source = PairEvidence(), np.random.default_rng(seed)
    highest = -math.inf
    for _ in range(num_pairs):
        ours, theirs = draw(source), RIGHT(source)
        evidence.add_text("ranks", [ours], [theirs])
        evidence.add_token(0, "place", ours)
        evidence.add_token(1, "place", theirs)
        highest = max(highest, evidence.log_evidence)
    return highest


def test_pairs_of_the_same_law_hardly_ever_look_different():
    assert sum(pair_evidence(RIGHT, seed) >= math.log(20.0) for seed in range(NUM_RUNS)) <= 7


@pytest.mark.parametrize("wrong", ["argmax", "sharper", "ranks exchanged"])
def test_pairs_of_different_laws_are_found(wrong):
    assert pair_evidence(WRONG[wrong], 0) > NEEDED


def test_copies_are_found_if_they_are_unlikely():
    unlikely, likely = RepeatEvidence(), RepeatEvidence()
    for number in range(12):
        assert unlikely.add("same", -20.0) is (number > 0)
        likely.add("same", -0.01)
    assert unlikely.log_evidence > NEEDED
    assert likely.log_evidence < 1.0
    assert unlikely.num_repeats == likely.num_repeats == 11


def test_texts_that_all_differ_are_no_evidence():
    evidence = RepeatEvidence()
    for number in range(12):
        evidence.add(number, -20.0)
    assert evidence.log_evidence < 0.0
    assert evidence.num_repeats == 0


def test_mean_of_large_exponentials():
    assert log_mean_exp([1000.0, 1000.0 + math.log(3.0)]) == pytest.approx(1000.0 + math.log(2.0))
