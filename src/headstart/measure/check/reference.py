"""What a server is held to: the model's own law, or another server that decodes plainly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headstart.measure.check.answers import Answer, Asker, Token
from headstart.measure.check.departures import Walk
from headstart.measure.check.evidence import NearMissEvidence
from headstart.measure.check.tolerance import Tolerance

Prompt = str | tuple[int, ...]
"""A text, or its token ids where the vocabulary is known."""

# Where the full logits are not seen, what those of language models usually spread.
_USUAL_SPREAD = 3.0
# A server that takes the likeliest token nearly always, and loses hardly any bet on it.
ARGMAX_SHARE = 0.97


@dataclass(kw_only=True, slots=True)
class FreshComparison:
    """What a server says when the text so far is new to it, so that no draft had a part in it.

    Attributes:
        errors: of differences of log-probabilities, theirs and ours.
        own_errors: likewise, of a reference that rounds otherwise when it writes a text than when it is given it. Two
            servers of one engine may agree to the bit there, and yet not where one of them verifies drafts.
        margins: by how much its token was less likely than the likeliest, in nats.
        own_margins: likewise by the server's own word, where it gives one.
        spread: standard deviation of logits.
    """

    errors: list[float] = field(default_factory=list)
    own_errors: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    own_margins: list[float] = field(default_factory=list)
    spread: float = _USUAL_SPREAD

    def take(self, answer: Answer, margin: float) -> None:
        """Note the first token of an answer, and by how much it is less likely than the likeliest."""
        self.margins.append(margin)
        own_margin = answer.own_margin(0)
        if own_margin is not None:
            self.own_margins.append(own_margin)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A text that is to be drawn.

    Attributes:
        prompt: what it goes on from.
        temperature: above 0.
        seed: of the draw.
        max_tokens: of it.
    """

    prompt: Prompt
    temperature: float
    seed: int
    max_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankShares:
    """How often the likeliest token came, the second, ..., and any other: of all but the first tokens of texts.

    Attributes:
        drawn: shares of what the server drew; the last is of all further ranks.
        right: what they should be, or were at the plain server.
    """

    drawn: tuple[float, ...]
    right: tuple[float, ...]

    @property
    def variation(self) -> float:
        """Half of the sum of the differences: what of all draws went elsewhere, at least."""
        return sum(abs(drawn - right) for drawn, right in zip(self.drawn, self.right, strict=True)) / 2.0


class SampleTest(Protocol):
    """Evidence about drawn texts, which grows with each."""

    @property
    def num_draws(self) -> int:
        """Tokens that count."""

    def ask_beside(self, sample: Sample) -> Answer | None:
        """What the reference itself draws, if it has to; any number of threads may ask."""

    def add(self, sample: Sample, answer: Answer, beside: Answer | None) -> None:
        """One drawn text, and what was drawn beside it."""

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence against the server."""

    @property
    def is_argmax(self) -> bool:
        """Whether the evidence is that the likeliest token is taken."""

    @property
    def shares(self) -> RankShares:
        """What was drawn, coarsely, for people to look at."""


class Reference(Protocol):
    """What is right."""

    def compare_fresh(self, asker: Asker, prompt: Prompt, written: Sequence[Token], into: FreshComparison) -> None:
        """Ask the server for one token after a text, and compare."""

    def walk(
        self,
        prompt: Prompt,
        answer: Answer,
        tolerance: Tolerance,
        number: int,
        evidence: NearMissEvidence,
    ) -> Walk:
        """Compare a greedy answer; the evidence is told of each place."""

    def log_probability(self, prompt: Prompt, answer: Answer, temperature: float = 1.0) -> float | None:
        """Of an answer that was drawn, at most; `None` if it cannot be known."""

    def later_margins(self, prompt: Prompt, answer: Answer) -> list[float]:
        """By how much each token after the first is less likely than the likeliest, in nats."""

    def sample_test(self, tolerance: Tolerance) -> SampleTest:
        """A test of the distribution of drawn texts."""
