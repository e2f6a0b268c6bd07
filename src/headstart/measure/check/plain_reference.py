"""Holds a server to another that decodes plainly, of which only answers are known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from headstart.errors import UnsupportedError
from headstart.measure.check.answers import NUM_TOP, Answer, Asker, Token
from headstart.measure.check.departures import Walk, compare_by_plain
from headstart.measure.check.evidence import NearMissEvidence, PairEvidence, log_sum_exp
from headstart.measure.check.reference import ARGMAX_SHARE, FreshComparison, Prompt, RankShares, Sample, SampleTest
from headstart.measure.check.tolerance import Tolerance, pair_errors

# How many characters at the end of a text must have been there before for a guess at what comes: which a drafter goes
# by is not known.
_LOOKED_UP = (3, 6, 12)


class PlainReference:
    """A server that decodes plainly; only its answers are known."""

    def __init__(self, asker: Asker, max_tokens: int) -> None:
        """Take a server.

        Args:
            asker: the server.
            max_tokens: of a greedy answer.
        """
        self._asker = asker
        self._max_tokens = max_tokens
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
        into.take(answer, plain.tops[0][0][1] - said.get(answer.tokens[0], least))
        if answer.tops:
            into.errors += _errors(answer.tops[0], said)
        self._compare_with_itself(prompt, len(written), written, plain, into)

    def _compare_with_itself(
        self, prompt: Prompt, place: int, written: Sequence[Token], fresh: Answer, into: FreshComparison
    ) -> None:
        """What the plain server says of a place of its own text when it writes it, and when it is given it."""
        own = self._answer(prompt)
        tokens = own.tokens or ()
        if not 0 < place < len(own.tops) or not all(isinstance(token, str) for token in tokens):
            return
        if tokens[:place] != tuple(written):
            fresh = self._asker.ask(str(prompt) + "".join(map(str, tokens[:place])), 1)
        if fresh.tops:
            into.own_errors += _errors(fresh.tops[0], dict(own.tops[place]))

    def walk(
        self,
        prompt: Prompt,
        answer: Answer,
        tolerance: Tolerance,
        number: int,
        evidence: NearMissEvidence,
    ) -> Walk:
        """See `Reference`; the two are compared up to where they part."""
        plain = self._answer(prompt)
        self._check_comparable(plain, answer)
        return compare_by_plain(plain, answer, tolerance, number, evidence)

    def _answer(self, prompt: Prompt) -> Answer:
        if prompt not in self._plain:
            self._plain[prompt] = self._asker.ask(prompt, self._max_tokens)
        return self._plain[prompt]

    def _check_comparable(self, plain: Answer, answer: Answer) -> None:
        kinds = {type(token) for tokens in (plain.tokens, answer.tokens) for token in tokens or ()}
        is_silent = any(some.tokens is None or len(some.tops) < len(some.tokens) for some in (plain, answer))
        if is_silent or len(kinds) > 1:
            raise UnsupportedError(
                f"{self._asker.url} does not tell its tokens as the other server does, so they cannot be compared. "
                "Switch on log-probabilities in both."
            )

    def log_probability(self, prompt: Prompt, answer: Answer, temperature: float = 1.0) -> float | None:
        """See `Reference`; by the server's own word, which is of temperature 1."""
        if answer.tokens is None or any(map(math.isnan, answer.logprobs)):
            return None
        if temperature == 1.0:
            return sum(answer.logprobs)
        # all that is named makes a part of what a probability is divided by: it is this at most
        return sum(
            own / temperature
            - log_sum_exp([own / temperature, *(value / temperature for token, value in top if token != written)])
            for written, own, top in zip(answer.tokens, answer.logprobs, answer.tops, strict=True)
        )

    def later_margins(self, prompt: Prompt, answer: Answer) -> list[float]:
        """See `Reference`; by the server's own word."""
        places = zip(answer.best_logprobs, answer.logprobs, strict=True)
        return [best - own for best, own in places if math.isfinite(best - own)][1:]

    def sample_test(self, tolerance: Tolerance) -> SampleTest:
        """See `Reference`; as many texts are drawn from the plain server."""
        return _PairSamples(self._asker)


def _errors(theirs: Sequence[tuple[Token, float]], said: Mapping[Token, float]) -> list[float]:
    """Of differences of log-probabilities, as far as both name the same tokens."""
    shared = [(candidate, value) for candidate, value in theirs if candidate in said]
    return pair_errors(shared, [said[candidate] for candidate, _ in shared])


class _PairSamples:
    """Texts drawn from two servers."""

    def __init__(self, plain: Asker) -> None:
        self._plain = plain
        self._evidence = PairEvidence()
        self._later_ranks: tuple[list[int], list[int]] = ([], [])

    @property
    def num_draws(self) -> int:
        return self._evidence.num_draws

    def ask_beside(self, sample: Sample) -> Answer:
        return self._plain.ask(sample.prompt, sample.max_tokens, temperature=sample.temperature, seed=sample.seed)

    def add(self, sample: Sample, answer: Answer, beside: Answer | None) -> None:
        assert beside is not None
        # the first token comes of the prompt's pass, in which nothing is drafted
        later = [_ranks(drawn)[1:] for drawn in (answer, beside)]
        self._evidence.add_text("ranks", *later)
        for length in _LOOKED_UP:
            copied = [_is_copied(str(sample.prompt), drawn, length)[1:] for drawn in (answer, beside)]
            self._evidence.add_text(f"copies after {length}", *copied)
        for side, drawn in enumerate((answer, beside)):
            self._later_ranks[side].extend(later[side])
            context: tuple[object, ...] = (sample.prompt, sample.temperature)
            for token in drawn.tokens or ():
                self._evidence.add_token(side, context, token)
                context = (*context, token)

    @property
    def log_evidence(self) -> float:
        return self._evidence.log_evidence

    @property
    def is_argmax(self) -> bool:
        return self.shares.drawn[0] >= ARGMAX_SHARE > self.shares.right[0]

    @property
    def shares(self) -> RankShares:
        drawn, right = (_shares(ranks) for ranks in self._later_ranks)
        return RankShares(drawn=drawn, right=right)


def _shares(ranks: Sequence[int]) -> tuple[float, ...]:
    counts = Counter(ranks)
    return tuple(counts[rank] / max(len(ranks), 1) for rank in range(NUM_TOP + 1))


def _ranks(answer: Answer) -> list[int]:
    """Of each token, among the likeliest that the server names."""
    return [
        next((rank for rank, (other, _) in enumerate(top) if other == token), NUM_TOP)
        for token, top in zip(answer.tokens or (), answer.tops, strict=False)
    ]


def _is_copied(prompt: str, answer: Answer, length: int) -> list[bool]:
    """Of each token, whether it is what followed the end of the text, so many characters, when that was last there."""
    text, copied = prompt, []
    for token in answer.tokens or ():
        end = text[-length:]
        before = text.rfind(end, 0, len(text) - 1)
        copied.append(before >= 0 and text.startswith(str(token), before + len(end)))
        text += str(token)
    return copied
