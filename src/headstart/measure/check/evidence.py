"""Bets against a server's samples: evidence that may be looked at after every draw.

The test of a distribution is a game. Before each token we say which distribution we would bet on instead of the
model's; our fortune is then multiplied by the ratio of the two probabilities of the token that came. If tokens are
drawn from the model, each factor is 1 on average, whatever we bet on, so the fortune ever exceeds 1 / a with
probability a at most (Ville's inequality). Hence it may be watched, and the game stopped as soon as it is clear,
without a correction for looking often; and several bets may share a fortune. The fortune is the evidence: its
logarithm grows by the Kullback-Leibler divergence a draw, if what is bet on is the truth.

Source: Shafer, Testing by betting (2021); Grünwald, de Heide, Koolen, Safe testing (2024).
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_LIKELIEST_SHARE = 0.9
_SHARPNESS = (0.5, 0.75, 1.33, 2.0)
_GUESS_ODDS = (0.25, 0.5, 2.0, 4.0)
_BINS = 8
_CONTEXT_WEIGHT = 4.0


class LawEvidence:
    """Evidence that tokens do not have the distributions that are known exactly.

    What is bet on: mostly the likeliest token; flatter and sharper distributions; what a drafter would guess, more or
    less often than is right; ranks that came too often before; tokens that came too often before at the same place of
    the same text.
    """

    def __init__(self, seed: int = 0) -> None:
        """Nothing was drawn yet.

        Args:
            seed: of the positions of tokens within a bin.
        """
        self._random = random.Random(seed)
        self._wealth: dict[str, float] = defaultdict(float)
        self._bins = np.zeros(_BINS)
        self._seen: dict[Hashable, Counter[int]] = defaultdict(Counter)
        self.num_draws = 0

    def add(
        self,
        context: Hashable,
        log_probabilities: NDArray[np.float64],
        token: int,
        *,
        guess: int | None = None,
        deviation: float = 0.0,
    ) -> None:
        """Play one token.

        Args:
            context: names the text before it.
            log_probabilities: [V], the model's.
            token: what the server drew.
            guess: what a drafter may have proposed.
            deviation: of differences of the server's log-probabilities from ours, by rounding. By knowing them a bet
                could win deviation**2 / 4 on average, less where a token is sure; four times that is taken off.
        """
        self.num_draws += 1
        own = float(log_probabilities[token])
        if own < -80.0:  # never drawn; a finite bet keeps the sum finite
            own = -80.0
        own_share = math.exp(own)
        hit = float(token == int(log_probabilities.argmax()))
        gains = {"argmax": math.log((1.0 - _LIKELIEST_SHARE) + _LIKELIEST_SHARE * hit / own_share)}
        for power in _SHARPNESS:
            normaliser = math.log(float(np.exp(power * log_probabilities).sum()))
            gains[f"sharpness {power}"] = (power - 1.0) * own - normaliser
        chance = 0.0 if guess is None else math.exp(float(log_probabilities[guess]))
        for odds in _GUESS_ODDS:
            gains[f"guess {odds}"] = math.log((odds if token == guess else 1.0) / (1.0 - chance + odds * chance))
        gains["rank"] = self._rank_gain(log_probabilities, token, own_share)
        # the variance of independent errors, weighed by probability, is deviation**2 / 2 times this
        doubt = 1.0 - float(np.exp(2.0 * log_probabilities).sum())
        seen = self._seen[context]
        total = seen.total()
        gains["context"] = math.log((_CONTEXT_WEIGHT + seen[token] / own_share) / (_CONTEXT_WEIGHT + total))
        seen[token] += 1
        for bet, gain in gains.items():
            self._wealth[bet] += gain - deviation * deviation * doubt

    def _rank_gain(self, log_probabilities: NDArray[np.float64], token: int, own_share: float) -> float:
        """From where the token lies in [0, 1), tokens laid out by probability, the likeliest first."""
        before = float(np.exp(log_probabilities[log_probabilities > log_probabilities[token]]).sum())
        place = min(int((before + self._random.random() * own_share) * _BINS), _BINS - 1)
        gain = math.log((1.0 + self._bins[place]) * _BINS / (_BINS + self._bins.sum()))
        self._bins[place] += 1
        return gain

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the fortune, the mean of all bets."""
        return log_mean_exp(self._wealth.values()) if self._wealth else 0.0


class ToldEvidence:
    """Evidence that tokens are not drawn with the probabilities that the server itself tells.

    No rounding is between the two, so it sees what `LawEvidence` must take for rounding. What is bet on: ranks that
    came too often before, and what a drafter would guess, more or less often than is right.
    """

    def __init__(self, num_named: int) -> None:
        """Nothing was drawn yet.

        Args:
            num_named: tokens that are told at each place, at most.
        """
        self._drawn = np.ones(num_named + 1)
        self._expected = np.ones(num_named + 1)
        self._wealth: dict[str, float] = defaultdict(float)

    def add(self, shares: Sequence[float], rank: int, guess_rank: int | None) -> None:
        """Play one token.

        Args:
            shares: probabilities of the likeliest tokens, best first, and last of all others together.
            rank: of the token that came, among these.
            guess_rank: of what a drafter may have proposed; `None` if it is not named.
        """
        right = np.zeros(len(self._drawn))
        right[: len(shares) - 1], right[-1] = shares[:-1], shares[-1]
        right /= right.sum()
        place = len(right) - 1 if rank >= len(shares) - 1 else rank
        favour = self._drawn / self._expected
        self._wealth["rank"] += math.log(favour[place] / float(right @ favour))
        self._drawn[place] += 1.0
        self._expected += right
        chance = 0.0 if guess_rank is None else float(right[guess_rank])
        for odds in _GUESS_ODDS:
            self._wealth[f"guess {odds}"] += math.log(
                (odds if place == guess_rank else 1.0) / (1.0 - chance + odds * chance)
            )

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the fortune, the mean of all bets."""
        return log_mean_exp(self._wealth.values()) if self._wealth else 0.0


class NearMissEvidence:
    """Evidence that tokens near the likeliest are written for it more often than rounding explains.

    One such token may be a tie that fell the other way; several, none of them quite as close as rounding makes likely,
    are not. What is bet on: of the places with a second token within some reach, a share departs.
    """

    _SHARES = (0.05, 0.3)
    _REACHES = (0.25, 0.5, 1.0, 2.0)

    def __init__(self, scale: float, step: float = 0.0) -> None:
        """Nothing was seen yet.

        Args:
            scale: of the Laplace distribution of the errors of differences of log-probabilities.
            step: by which they may differ besides, at any place.
        """
        self._scale = scale
        self._step = step
        self._wealth = {(share, reach): 0.0 for share in self._SHARES for reach in self._REACHES}

    def add(self, margins: NDArray[np.float64], departed: bool) -> None:
        """Play one place.

        Args:
            margins: [V - 1] or fewer, log-probability of the likeliest less that of each other token.
            departed: whether another was written.
        """
        # a token overtakes the likeliest if the error of their difference exceeds the margin
        beyond = np.maximum(margins - self._step, 0.0)
        by_rounding = min(float(0.5 * np.exp(-beyond / self._scale).sum()), 0.5) if margins.size else 0.0
        by_rounding = max(by_rounding, 1e-12)
        for (share, reach), wealth in self._wealth.items():
            if margins.size and margins.min() <= reach and share > by_rounding:
                factor = share / by_rounding if departed else (1.0 - share) / (1.0 - by_rounding)
                self._wealth[share, reach] = wealth + math.log(factor)

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the fortune."""
        return log_mean_exp(self._wealth.values())


class PairEvidence:
    """Evidence that two servers draw from different distributions, neither of which is known.

    Texts are drawn in pairs, one of each server. If the distributions are equal, either of the two could as well have
    come from the other; the bet is on which came from where. Some bets are on the looks of all tokens of a text, such
    as their ranks; another is on single tokens at the same place of the same text.
    """

    def __init__(self) -> None:
        """Nothing was drawn yet."""
        self._waiting: tuple[dict[Hashable, list[Hashable]], ...] = (defaultdict(list), defaultdict(list))
        self._counts: defaultdict[Hashable, tuple[Counter[Hashable], Counter[Hashable]]] = defaultdict(
            lambda: (Counter(), Counter())
        )
        self._wealth: dict[str, float] = defaultdict(float, tokens=0.0)
        self.num_draws = 0

    def add_text(self, look: str, ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> None:
        """Play a pair of texts.

        Args:
            look: what is looked at, a bet of its own.
            ours, theirs: this of each token, such as its rank among the likeliest at its place.
        """
        self._wealth[look] += self._gain(look, ours, theirs)

    def add_token(self, side: int, context: Hashable, token: Hashable) -> None:
        """Play one token, as soon as the other server has one to pair with it.

        Args:
            side: 0 or 1, whose it is.
            context: names the text before it.
            token: what was drawn.
        """
        self.num_draws += side == 0
        self._waiting[side][context].append(token)
        first, second = (waiting[context] for waiting in self._waiting)
        if first and second:
            self._wealth["tokens"] += self._gain(context, [first.pop(0)], [second.pop(0)])

    def _gain(self, key: Hashable, ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> float:
        own, other = self._counts[key]
        own_total, other_total = math.log(own.total() + 1.0), math.log(other.total() + 1.0)

        def favour(outcomes: Sequence[Hashable]) -> float:
            """How much better these fit what our side drew before than what the other did."""
            return math.fsum(
                math.log(own[outcome] + 0.5) - own_total - math.log(other[outcome] + 0.5) + other_total
                for outcome in outcomes
            )

        advantage = favour(ours) - favour(theirs)
        own.update(ours)
        other.update(theirs)
        return math.log(2.0) - float(np.logaddexp(0.0, -advantage))

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the fortune."""
        return log_mean_exp(self._wealth.values())


class RepeatEvidence:
    """Evidence that texts which should be independent are copies of one another."""

    def __init__(self) -> None:
        """No text yet."""
        self._log_wealth = 0.0
        self._earlier: dict[Hashable, float] = {}
        self.num_repeats = 0

    def add(self, text: Hashable, log_probability: float) -> bool:
        """Play one text; half of the fortune is bet on its being one of the earlier.

        Args:
            text: what was drawn.
            log_probability: of the whole text, by the model.

        Returns:
            Whether it came before.
        """
        repeated = text in self._earlier
        if self._earlier:
            chance = min(sum(math.exp(value) for value in self._earlier.values()), 1.0)
            self._log_wealth += math.log(0.5 + 0.5 * (repeated / max(chance, 1e-30)))
        self.num_repeats += repeated
        self._earlier.setdefault(text, log_probability)
        return repeated

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the fortune."""
        return self._log_wealth


def log_mean_exp(values: Iterable[float]) -> float:
    """Logarithm of the mean of exponentials."""
    listed: Sequence[float] = list(values)
    return log_sum_exp(listed) - math.log(len(listed))


def log_sum_exp(values: Sequence[float]) -> float:
    """Logarithm of the sum of exponentials."""
    highest = max(values)
    return highest + math.log(math.fsum(math.exp(value - highest) for value in values))
