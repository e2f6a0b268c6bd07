"""What a server is held to: the model's own law, or another server that decodes plainly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.errors import UnsupportedError
from headstart.measure.check.answers import Answer, Asker, Token
from headstart.measure.check.departures import Walk, compare_by_plain, walk_by_law
from headstart.measure.check.evidence import LawEvidence, NearMissEvidence, PairEvidence
from headstart.measure.check.tolerance import Tolerance, pair_errors
from headstart.measure.check.trunk_law import TrunkLaw

Prompt = str | tuple[int, ...]
"""A text, or its token ids where the vocabulary is known."""

# Where the full logits are not seen, what those of language models usually spread.
_USUAL_SPREAD = 3.0
# A server that takes the likeliest token nearly always, and loses hardly any bet on it.
_ARGMAX_SHARE = 0.97


@dataclass(kw_only=True, slots=True)
class FreshComparison:
    """What a server says when the text so far is new to it, so that no draft had a part in it.

    Attributes:
        errors: of differences of log-probabilities, theirs and ours.
        margins: by how much its token was less likely than the likeliest, in nats.
        spread: standard deviation of logits.
    """

    errors: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    spread: float = _USUAL_SPREAD


class SampleTest(Protocol):
    """Evidence about drawn texts, which grows with each."""

    @property
    def num_draws(self) -> int:
        """Tokens that count."""

    def add(self, prompt: Prompt, seed: int, answer: Answer) -> None:
        """One drawn text."""

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence against the server."""

    @property
    def is_argmax(self) -> bool:
        """Whether the evidence is that the likeliest token is taken."""


class Reference(Protocol):
    """What is right."""

    def compare_fresh(self, asker: Asker, prompt: Prompt, written: Sequence[Token], into: FreshComparison) -> None:
        """Ask the server for one token after a text, and compare."""

    def walk(
        self,
        prompt: Prompt,
        answer: Answer,
        max_tokens: int,
        tolerance: Tolerance,
        number: int,
        evidence: NearMissEvidence,
    ) -> Walk:
        """Compare a greedy answer; the evidence is told of each place."""

    def log_probability(self, prompt: Prompt, answer: Answer) -> float | None:
        """Of an answer drawn at temperature 1, at most; `None` if it cannot be known."""

    def later_margins(self, prompt: Prompt, answer: Answer) -> list[float]:
        """By how much each token after the first is less likely than the likeliest, in nats."""

    def sample_test(self, max_tokens: int, tolerance: Tolerance) -> SampleTest:
        """A test of the distribution of drawn texts."""


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
        into.margins.append(float(row.max() - row[token]))
        if answer.tops:
            top = [(candidate, value) for candidate, value in answer.tops[0] if isinstance(candidate, int)]
            into.errors += pair_errors(top, [float(row[candidate]) for candidate, _ in top])

    def walk(
        self,
        prompt: Prompt,
        answer: Answer,
        max_tokens: int,
        tolerance: Tolerance,
        number: int,
        evidence: NearMissEvidence,
    ) -> Walk:
        """See `Reference`; the answer is followed through all its departures."""
        return walk_by_law(self._law, _ids(prompt), answer, self._end_ids, tolerance, number, evidence)

    def log_probability(self, prompt: Prompt, answer: Answer) -> float | None:
        """See `Reference`."""
        if answer.tokens is None:
            return None
        return sum(float(row[token]) for row, token in self._rows(prompt, answer))

    def later_margins(self, prompt: Prompt, answer: Answer) -> list[float]:
        """See `Reference`."""
        return [float(row.max() - row[token]) for row, token in self._rows(prompt, answer)[1:]]

    def sample_test(self, max_tokens: int, tolerance: Tolerance) -> SampleTest:
        """See `Reference`; against the exact probabilities."""
        return _LawSamples(self._draws, LawEvidence(tolerance.deviation), tolerance.margin)

    def _rows(self, prompt: Prompt, answer: Answer) -> list[tuple[NDArray[np.float64], int]]:
        tokens = _ids(answer.tokens or ())
        if not tokens:
            return []
        return list(zip(self._law.after([*_ids(prompt), *tokens[:-1]], len(tokens)), tokens, strict=True))

    def _draws(self, prompt: Prompt, answer: Answer) -> list[_Draw]:
        """What was drawn, token by token; tokens that cannot be told from each other are one."""
        tokens = _ids(answer.tokens or ())
        ends, unreadable = self._end_ids, self._unreadable()
        if not answer.is_whole and unreadable:
            tokens.append(unreadable[0])
        elif answer.ended and ends:
            tokens.append(ends[0])
        if not tokens:
            return []
        rows = self._law.after([*_ids(prompt), *tokens[:-1]], len(tokens))
        highest = rows.max(axis=1)
        groups = [[token for token in group if token < self._law.vocab_size] for group in (ends, unreadable)]
        margins = []
        for row, token, best in zip(rows, tokens, highest, strict=True):
            own = next((group for group in groups if token in group[:1]), [token])
            margins.append(float(best - row[own].max()))
        for group in groups:
            if len(group) > 1:
                joined = np.logaddexp.reduce(rows[:, group], axis=1)
                rows[:, group] = -np.inf
                rows[:, group[0]] = joined
        return [_Draw(*draw) for draw in zip(rows, tokens, margins, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Draw:
    """A token, the log-probabilities [V] that it was drawn with, and by how much it was not the likeliest."""

    log_probabilities: NDArray[np.float64]
    token: int
    margin: float


class _LawSamples:
    """Drawn texts, each token a bet at known odds."""

    def __init__(
        self,
        draws: Callable[[Prompt, Answer], list[_Draw]],
        evidence: LawEvidence,
        margin: float,
    ) -> None:
        self._draws = draws
        self._margin = margin
        self._evidence = evidence
        self._num_later = self._num_likeliest = 0

    @property
    def num_draws(self) -> int:
        return self._evidence.num_draws

    def add(self, prompt: Prompt, seed: int, answer: Answer) -> None:
        context: tuple[object, ...] = (prompt,)
        for place, draw in enumerate(self._draws(prompt, answer)):
            self._evidence.add(context, draw.log_probabilities, draw.token)
            context = (*context, draw.token)
            if place:  # the first token comes of the prompt's pass, in which nothing is drafted
                self._num_later += 1
                self._num_likeliest += draw.margin <= self._margin

    @property
    def log_evidence(self) -> float:
        return self._evidence.log_evidence

    @property
    def is_argmax(self) -> bool:
        return self._num_likeliest >= _ARGMAX_SHARE * self._num_later


class PlainReference:
    """A server that decodes plainly; only its answers are known."""

    def __init__(self, asker: Asker) -> None:
        """Take a server."""
        self._asker = asker
        self._plain: dict[Prompt, Answer] = {}

    def compare_fresh(self, asker: Asker, prompt: Prompt, written: Sequence[Token], into: FreshComparison) -> None:
        """See `Reference`; both servers are asked."""
        if not all(isinstance(token, str) for token in written):
            return  # the texts of ids are not known here
        text = str(prompt) + "".join(map(str, written))
        answer, plain = asker.ask(text, 1), self._asker.ask(text, 1)
        if not answer.tokens or not plain.tokens or not plain.tops or not plain.tops[0]:
            return
        said = dict(plain.tops[0])
        least = min(said.values())
        into.margins.append(plain.tops[0][0][1] - said.get(answer.tokens[0], least))
        if answer.tops:
            top = [(candidate, value) for candidate, value in answer.tops[0] if candidate in said]
            into.errors += pair_errors(top, [said[candidate] for candidate, _ in top])

    def walk(
        self,
        prompt: Prompt,
        answer: Answer,
        max_tokens: int,
        tolerance: Tolerance,
        number: int,
        evidence: NearMissEvidence,
    ) -> Walk:
        """See `Reference`; the two are compared up to where they part."""
        if prompt not in self._plain:
            self._plain[prompt] = self._asker.ask(prompt, max_tokens)
            self._check_comparable(self._plain[prompt], answer)
        return compare_by_plain(self._plain[prompt], answer, tolerance, number, evidence)

    def _check_comparable(self, plain: Answer, answer: Answer) -> None:
        kinds = {type(token) for tokens in (plain.tokens, answer.tokens) for token in tokens or ()}
        if not plain.tops or not answer.tops or len(kinds) > 1:
            raise UnsupportedError(
                f"{self._asker.url} does not tell its tokens as the other server does, so they cannot be compared. "
                "Switch on log-probabilities in both."
            )

    def log_probability(self, prompt: Prompt, answer: Answer) -> float | None:
        """See `Reference`; by the server's own word."""
        if answer.tokens is None or any(map(math.isnan, answer.logprobs)):
            return None
        return sum(answer.logprobs)

    def later_margins(self, prompt: Prompt, answer: Answer) -> list[float]:
        """See `Reference`; by the server's own word."""
        places = zip(answer.best_logprobs, answer.logprobs, strict=True)
        return [best - own for best, own in places if math.isfinite(best - own)][1:]

    def sample_test(self, max_tokens: int, tolerance: Tolerance) -> SampleTest:
        """See `Reference`; as many texts are drawn from the plain server."""
        return _PairSamples(self._asker, max_tokens)


class _PairSamples:
    """Texts drawn from two servers."""

    def __init__(self, plain: Asker, max_tokens: int) -> None:
        self._plain = plain
        self._max_tokens = max_tokens
        self._evidence = PairEvidence()
        self._later_ranks: tuple[list[int], list[int]] = ([], [])

    @property
    def num_draws(self) -> int:
        return self._evidence.num_draws

    def add(self, prompt: Prompt, seed: int, answer: Answer) -> None:
        plain = self._plain.ask(prompt, self._max_tokens, temperature=1.0, seed=seed)
        ranks = [_ranks(drawn) for drawn in (answer, plain)]
        self._evidence.add_ranks(*ranks)
        for side, drawn in enumerate((answer, plain)):
            self._later_ranks[side].extend(ranks[side][1:])
            context: tuple[object, ...] = (prompt,)
            for token in drawn.tokens or ():
                self._evidence.add_token(side, context, token)
                context = (*context, token)

    @property
    def log_evidence(self) -> float:
        return self._evidence.log_evidence

    @property
    def is_argmax(self) -> bool:
        own, other = (ranks.count(0) / max(len(ranks), 1) for ranks in self._later_ranks)
        return own >= _ARGMAX_SHARE > other


def _ranks(answer: Answer) -> list[int]:
    """Of each token, among the likeliest that the server names."""
    return [
        next((rank for rank, (other, _) in enumerate(top) if other == token), len(top))
        for token, top in zip(answer.tokens or (), answer.tops, strict=False)
    ]


def _ids(tokens: Sequence[Token] | Prompt) -> list[int]:
    return [token for token in tokens if isinstance(token, int)]
