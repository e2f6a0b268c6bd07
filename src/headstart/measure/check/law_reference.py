"""Holds a server to the model itself, run here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.measure.check.answers import NUM_TOP, Answer, Asker, Token
from headstart.measure.check.departures import Walk, walk_by_law
from headstart.measure.check.evidence import LawEvidence, NearMissEvidence, ToldEvidence, log_mean_exp
from headstart.measure.check.reference import ARGMAX_SHARE, FreshComparison, Prompt, RankShares, Sample, SampleTest
from headstart.measure.check.tolerance import Tolerance, pair_errors
from headstart.measure.check.trunk_law import TrunkLaw

# Tokens at the end of a text that must have been there before for a guess at what comes.
_LOOKED_UP = 2


class LawReference:
    """The model itself, run here."""

    def __init__(self, law: TrunkLaw, end_ids: tuple[int, ...], unreadable: Callable[[], Sequence[int]]) -> None:
        """Take a model.

        Args:
            law: the model.
            end_ids: what ends a text.
            unreadable: ids that the server cannot name; asked when a distribution is first compared.
        """
        self._law = law
        self._end_ids = end_ids
        self._unreadable = unreadable

    def compare_fresh(self, asker: Asker, prompt: Prompt, written: Sequence[Token], into: FreshComparison) -> None:
        """See `Reference`."""
        text = _ids((*prompt, *written))
        answer = asker.ask(text, 1)
        row = self._law.after(text)[0]
        into.spread = float(np.std(row[np.isfinite(row)]))
        if not answer.tokens:
            return
        (token,) = _ids(answer.tokens[:1])
        into.take(answer, float(row.max() - row[token]))
        if answer.tops:
            top = [(candidate, value) for candidate, value in answer.tops[0] if isinstance(candidate, int)]
            into.errors += pair_errors(top, [float(row[candidate]) for candidate, _ in top])

    def walk(
        self,
        prompt: Prompt,
        answer: Answer,
        tolerance: Tolerance,
        number: int,
        evidence: NearMissEvidence,
    ) -> Walk:
        """See `Reference`; the answer is followed through all its departures."""
        return walk_by_law(self._law, _ids(prompt), answer, self._end_ids, tolerance, number, evidence)

    def log_probability(self, prompt: Prompt, answer: Answer, temperature: float = 1.0) -> float | None:
        """See `Reference`."""
        if answer.tokens is None:
            return None
        return sum(float(_tempered(row, temperature)[token]) for row, token in self._rows(prompt, answer))

    def later_margins(self, prompt: Prompt, answer: Answer) -> list[float]:
        """See `Reference`."""
        return [float(row.max() - row[token]) for row, token in self._rows(prompt, answer)[1:]]

    def sample_test(self, tolerance: Tolerance) -> SampleTest:
        """See `Reference`; against the exact probabilities."""
        return _LawSamples(self._draws, tolerance)

    def _rows(self, prompt: Prompt, answer: Answer) -> list[tuple[NDArray[np.float64], int]]:
        tokens = _ids(answer.tokens or ())
        if not tokens:
            return []
        return list(zip(self._law.after([*_ids(prompt), *tokens[:-1]], len(tokens)), tokens, strict=True))

    def _draws(self, sample: Sample, answer: Answer) -> list[_Draw]:
        """What was drawn, token by token; tokens that cannot be told from each other are one."""
        tokens = _ids(answer.tokens or ())
        ends, unreadable = self._end_ids, self._unreadable()
        if not answer.is_whole and unreadable:
            tokens.append(unreadable[0])
        elif answer.ended and ends:
            tokens.append(ends[0])
        if not tokens:
            return []
        text = _ids(sample.prompt)
        rows = self._law.after([*text, *tokens[:-1]], len(tokens))
        highest = rows.max(axis=1)
        groups = [[token for token in group if token < self._law.vocab_size] for group in (ends, unreadable)]
        hidden = [token for group in groups for token in group]
        hidden_shares = np.exp(rows[:, hidden]).sum(axis=1)
        margins = []
        for row, token, best in zip(rows, tokens, highest, strict=True):
            own = next((group for group in groups if token in group[:1]), [token])
            margins.append(float(best - row[own].max()))
        rows = _tempered(rows, sample.temperature)
        for group in groups:
            if len(group) > 1:
                joined = np.logaddexp.reduce(rows[:, group], axis=1)
                rows[:, group] = -np.inf
                rows[:, group[0]] = joined
        guesses = [_looked_up([*text, *tokens[:place]]) for place in range(len(tokens))]
        return [_Draw(*draw) for draw in zip(rows, tokens, margins, guesses, hidden_shares, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Draw:
    """A token that was drawn.

    Attributes:
        log_probabilities: [V], that it should have been drawn with.
        token: its id.
        margin: by how much it was not the likeliest, in nats at temperature 1.
        guess: what a drafter that looks up the end of the text would have guessed.
        hidden_share: probability at temperature 1 of what a server does not name: ends, and parts of characters.
    """

    log_probabilities: NDArray[np.float64]
    token: int
    margin: float
    guess: int | None
    hidden_share: float


class _LawSamples:
    """Drawn texts, each token a bet at known odds."""

    def __init__(self, draws: Callable[[Sample, Answer], list[_Draw]], tolerance: Tolerance) -> None:
        self._draws = draws
        self._tolerance = tolerance
        self._evidence, self._told = LawEvidence(), ToldEvidence(NUM_TOP)
        self._num_later = self._num_likeliest = 0
        self._drawn, self._right = np.zeros(NUM_TOP + 1), np.zeros(NUM_TOP + 1)

    @property
    def num_draws(self) -> int:
        return self._evidence.num_draws

    def ask_beside(self, sample: Sample) -> None:
        """Nothing: the law is known."""

    def add(self, sample: Sample, answer: Answer, beside: Answer | None) -> None:
        context: tuple[object, ...] = (sample.prompt, sample.temperature)
        deviation = self._tolerance.deviation / sample.temperature
        for place, draw in enumerate(self._draws(sample, answer)):
            self._evidence.add(context, draw.log_probabilities, draw.token, guess=draw.guess, deviation=deviation)
            context = (*context, draw.token)
            if sample.temperature == 1.0 and place < len(answer.tops):
                self._add_told(answer.tops[place], draw)
            if place:  # the first token comes of the prompt's pass, in which nothing is drafted
                self._num_later += 1
                self._num_likeliest += draw.margin <= self._tolerance.margin
                self._count(draw)

    def _add_told(self, top: Sequence[tuple[Token, float]], draw: _Draw) -> None:
        """Hold a draw to the server's own word, if that is the model's but for rounding."""
        named = [(token, logprob) for token, logprob in top if isinstance(token, int)][:NUM_TOP]
        errors = pair_errors(named, [float(draw.log_probabilities[token]) for token, _ in named])
        if not errors or max(map(abs, errors)) > self._tolerance.margin:
            return
        tokens = [token for token, _ in named]
        shares = [float(np.exp(logprob)) for _, logprob in named]
        # what is not named did not come, or the text would have been cut before it
        rest = max(1.0 - sum(shares) - draw.hidden_share, 1e-6)
        rank, guess_rank = (tokens.index(token) if token in tokens else None for token in (draw.token, draw.guess))
        self._told.add([*shares, rest], len(tokens) if rank is None else rank, guess_rank)

    def _count(self, draw: _Draw) -> None:
        row = draw.log_probabilities
        rank = int((row > row[draw.token]).sum())
        self._drawn[min(rank, NUM_TOP)] += 1.0
        likeliest = np.exp(-np.sort(-row)[:NUM_TOP])
        self._right[: len(likeliest)] += likeliest
        self._right[NUM_TOP] += max(1.0 - float(likeliest.sum()), 0.0)

    @property
    def log_evidence(self) -> float:
        return log_mean_exp((self._evidence.log_evidence, self._told.log_evidence))

    @property
    def is_argmax(self) -> bool:
        shares = self.shares
        # where rounding is coarse, many tokens are as good as the likeliest: it must also have come much too often
        too_often = shares.drawn[0] - shares.right[0] > (1.0 - shares.right[0]) / 2.0
        return too_often and self._num_likeliest >= ARGMAX_SHARE * self._num_later

    @property
    def shares(self) -> RankShares:
        drawn, right = (tuple((counts / max(self._num_later, 1)).tolist()) for counts in (self._drawn, self._right))
        return RankShares(drawn=drawn, right=right)


def _tempered(log_probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """The same [..., V] at another temperature."""
    if temperature == 1.0:
        return log_probabilities
    scaled = log_probabilities / temperature
    result: NDArray[np.float64] = scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return result


def _looked_up(text: Sequence[int]) -> int | None:
    """What followed the last tokens of a text when they were last there before."""
    end = text[-_LOOKED_UP:]
    starts = range(len(text) - _LOOKED_UP - 1, -1, -1)
    return next((text[start + len(end)] for start in starts if text[start : start + len(end)] == end), None)


def _ids(tokens: Sequence[Token] | Prompt) -> list[int]:
    return [token for token in tokens if isinstance(token, int)]
