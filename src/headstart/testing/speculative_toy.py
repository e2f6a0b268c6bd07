"""Speculative decoding as textbooks have it, over toy models, and with faults on request.

It knows no seed-bound noise and no engine: drafts are drawn from a smaller model and accepted with
min(1, target / draft), a rejected one is replaced from what remains. So it is what other engines are: exact by
distribution, not by seed. With a fault it is wrong in a way that real engines were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headstart.measure.check.trunk_law import TrunkLaw
from headstart.runtime.protocol import Trunk

Floats = NDArray[np.float64]

WriterFault = Literal[
    "argmax at temperature 1",
    "near-miss accepted",
    "token lost after a rejection",
    "stale cache row",
    "draft distribution off",
]

_NEAR_NATS = 1.0
_WRONG_DRAFT_TEMPERATURE = 0.4
# log-probabilities that are remembered, so that a text which is asked for again need not be run again: 80 MB
_MAX_REMEMBERED = 10_000_000


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token and what the writer takes for the model's distribution at its place.

    Attributes:
        token: its id.
        log_probabilities: [V], at temperature 1.
    """

    token: int
    log_probabilities: Floats


class SpeculativeToy:
    """Writes texts round by round.

    Attributes:
        num_drafted: guesses in all rounds so far.
        num_accepted: of these, kept.

    Example:
        >>> toy = SpeculativeToy(ToyTrunk(48), ToyTrunk(48, context_weight=0.7), max_context=128)
        >>> rounds = toy.write([1, 2, 3], temperature=0.0, random_source=random.Random(0))
        >>> [written.token for written in next(rounds)]
    """

    def __init__(
        self,
        trunk: Trunk,
        draft_trunk: Trunk,
        *,
        max_context: int,
        num_drafts: int = 4,
        fault: WriterFault | None = None,
        logit_error: float = 0.0,
    ) -> None:
        """Take two models of one vocabulary.

        Args:
            trunk: decides.
            draft_trunk: guesses.
            max_context: tokens of the longest text.
            num_drafts: guesses a round.
            fault: what is wrong with it.
            logit_error: standard deviation of errors of the logits, always the same for the same text: rounding.
        """
        self._law = _RememberedLaw(TrunkLaw(trunk, max_context + num_drafts + 1))
        self._draft_law = _RememberedLaw(TrunkLaw(draft_trunk, max_context + num_drafts + 1))
        self._num_drafts = num_drafts
        self._fault = fault
        self._logit_error = logit_error
        self.num_drafted = self.num_accepted = 0

    def write(
        self, prompt: Sequence[int], *, temperature: float, random_source: random.Random
    ) -> Iterator[list[WrittenToken]]:
        """Write on without end; the caller stops asking.

        Args:
            prompt: token ids.
            temperature: 0 is greedy.
            random_source: of the draws.

        Yields:
            The tokens of a round.
        """
        text = list(prompt)
        stale: tuple[int, int] | None = None  # a rejected token that is still seen, and where
        (row,) = self._rows(text, 1)
        text.append(_draw(_tempered(row, temperature), random_source))
        yield [WrittenToken(text[-1], row)]
        while True:
            drafts, draft_shares = self._propose(text, temperature, random_source)
            seen = text if stale is None else [*text[: stale[0]], stale[1], *text[stale[0] :]]
            rows = self._rows([*seen, *drafts], len(drafts) + 1)
            written: list[WrittenToken] = []
            self.num_drafted += len(drafts)
            for draft, draft_share, row in zip(drafts, draft_shares, rows, strict=False):
                share = self._verified_share(row, temperature)
                if self._accepts(draft, draft_share, share, row, random_source):
                    self.num_accepted += 1
                    text.append(draft)
                    written.append(WrittenToken(draft, row))
                    continue
                if self._fault == "stale cache row":
                    stale = (len(text), draft)
                text.append(_draw(_residual(share, draft_share), random_source))
                if self._fault != "token lost after a rejection":
                    written.append(WrittenToken(text[-1], row))
                break
            else:
                text.append(_draw(self._verified_share(rows[-1], temperature), random_source))
                written.append(WrittenToken(text[-1], rows[-1]))
            yield written

    def _propose(
        self, text: Sequence[int], temperature: float, random_source: random.Random
    ) -> tuple[list[int], list[Floats]]:
        drafts: list[int] = []
        shares = []
        for _ in range(self._num_drafts):
            row = self._draft_law.after([*text, *drafts])[0]
            share = _tempered(row, temperature)
            is_off = self._fault == "draft distribution off" and temperature > 0
            drafts.append(_draw(_tempered(row, _WRONG_DRAFT_TEMPERATURE) if is_off else share, random_source))
            shares.append(share)
        return drafts, shares

    def _verified_share(self, row: Floats, temperature: float) -> Floats:
        return _tempered(row, 0.0 if self._fault == "argmax at temperature 1" else temperature)

    def _accepts(
        self, draft: int, draft_share: Floats, share: Floats, row: Floats, random_source: random.Random
    ) -> bool:
        if self._fault == "near-miss accepted" and row.max() - row[draft] <= _NEAR_NATS:
            return True
        if self._fault == "argmax at temperature 1":
            return bool(share[draft])
        return bool(random_source.random() * draft_share[draft] < share[draft])

    def _rows(self, text: Sequence[int], num_places: int) -> Floats:
        rows = self._law.after(text, num_places)
        if not self._logit_error:
            return rows
        for index, row in enumerate(rows):
            place = len(text) - num_places + index + 1
            error = np.random.default_rng([place, *text[:place]]).normal(0.0, self._logit_error, len(row))
            rows[index] = row + error - np.log(np.exp(row + error).sum())
        return rows


class _RememberedLaw:
    """A law that is not asked twice for the same, as long as memory lasts."""

    def __init__(self, law: TrunkLaw) -> None:
        self._law = law
        self._max_rows = _MAX_REMEMBERED // law.vocab_size
        self._rows: dict[tuple[int, ...], Floats] = {}

    def after(self, text: Sequence[int], num_places: int = 1) -> Floats:
        texts = [tuple(text[:end]) for end in range(len(text) - num_places + 1, len(text) + 1)]
        if any(known not in self._rows for known in texts):
            if len(self._rows) + num_places > self._max_rows:
                self._rows.clear()
            self._rows.update(zip(texts, self._law.after(text, num_places), strict=True))
        return np.stack([self._rows[known] for known in texts])


def _tempered(row: Floats, temperature: float) -> Floats:
    """Probabilities at a temperature."""
    share = np.zeros_like(row)
    if temperature == 0.0:
        share[row.argmax()] = 1.0
        return share
    share = np.exp((row - row.max()) / temperature)
    result: Floats = share / share.sum()
    return result


def _residual(share: Floats, draft_share: Floats) -> Floats:
    """What the target has more than the draft: the distribution of a replacement."""
    rest = np.maximum(share - draft_share, 0.0)
    result: Floats = rest / rest.sum() if rest.sum() > 0 else share
    return result


def _draw(share: Floats, random_source: random.Random) -> int:
    cumulative = np.cumsum(share)
    return int(np.searchsorted(cumulative, random_source.random() * cumulative[-1], side="right"))
