"""Where a greedy text departs from the model's own choices, and what each departure looks like."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.measure.check.answers import Answer, Token
from headstart.measure.check.evidence import NearMissEvidence
from headstart.measure.check.tolerance import Tolerance, pair_errors
from headstart.measure.check.trunk_law import TrunkLaw

DepartureKind = Literal["tie", "lost", "near-miss", "other"]

# A rejection may lose a token in several rounds running.
_MAX_LOST = 6
# How many tokens must go on as they should: one with its log-probability does not by chance, one without may.
_AGREEING, _AGREEING_WITHOUT = 1, 3
# Without the server's own log-probabilities: acceptance rules that keep near-misses keep tokens like these.
_NEAR_RANK, _NEAR_GAP = 3, 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """A place where the server's token is not the model's choice.

    Attributes:
        prompt: number of the prompt.
        position: of the token in the answer.
        server_token: what the server wrote; "end" if it ended the text.
        model_token: the model's choice.
        margin: log-probability of the model's choice less that of the server's token, by the reference.
        server_margin: the likeliest's less the written token's, by the server itself; `None` if it does not say.
        kind: tie (the margin is within the tolerance), near-miss (the server knows that another token is likelier,
            gives this one the probability that it has, and writes it), lost (the model's choice is missing, and the
            text goes on after it), or other.
    """

    prompt: int
    position: int
    server_token: Token
    model_token: Token
    margin: float
    server_margin: float | None
    kind: DepartureKind

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "prompt": self.prompt,
            "position": self.position,
            "server_token": self.server_token,
            "model_token": self.model_token,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "server_margin": self.server_margin,
            "kind": self.kind,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """One greedy answer, compared place by place.

    Attributes:
        departures: in order.
        num_places: places that were compared.
        num_deviating: of these, where the server's log-probabilities are not the model's.
    """

    departures: tuple[Departure, ...]
    num_places: int
    num_deviating: int


def walk_by_law(
    law: TrunkLaw,
    prompt: Sequence[int],
    answer: Answer,
    end_ids: Collection[int],
    tolerance: Tolerance,
    number: int,
    evidence: NearMissEvidence,
) -> Walk:
    """Compare an answer with the model, along the answer: after a departure the text goes on as the server wrote it.

    Args:
        law: the model.
        prompt: token ids.
        answer: the server's, in token ids.
        end_ids: what ends a text.
        tolerance: what is a tie.
        number: of the prompt, for the report.
        evidence: is told of each place.
    """
    tokens = [token for token in answer.tokens or () if isinstance(token, int)]
    before, done = list(prompt), 0  # what the server seems to have seen, and how many of its tokens are in it
    departures: list[Departure] = []
    deviating: set[int] = set()
    while done < len(tokens):
        said = law.after([*before, *tokens[done:-1]], len(tokens) - done)
        for offset, row in enumerate(said):
            place = done + offset
            best, token = int(row.argmax()), tokens[place]
            if _deviates(answer, place, row, tolerance):
                deviating.add(place)
            margin = float(row[best] - row[token])
            if margin <= tolerance.margin:
                evidence.add(row[best] - np.delete(row, best), token != best)
            if token == best:
                continue
            kind: DepartureKind = "tie"
            missing: list[int] = []
            if margin > tolerance.margin:
                knows = _knows_law(answer, place, float(row[token]), tolerance)
                if not knows:
                    missing = _lost(law, [*before, *tokens[done:place]], tokens, answer, place, tolerance)
                rank = int((row > row[token]).sum()) + 1
                kind = "lost" if missing else _kind(knows, answer.own_margin(place), rank, margin)
            departures.append(
                Departure(
                    prompt=number,
                    position=place,
                    server_token=token,
                    model_token=best,
                    margin=margin,
                    server_margin=answer.own_margin(place),
                    kind=kind,
                )
            )
            if missing:
                deviating.discard(place)  # its log-probabilities are those of another place
                before += [*tokens[done:place], *missing]
                done = place
                break
        else:
            before += tokens[done:]
            done = len(tokens)
    if answer.ended and answer.is_whole:
        departures += _wrong_end(law, before, len(tokens), end_ids, tolerance, number)
    return Walk(departures=tuple(departures), num_places=len(tokens) + answer.ended, num_deviating=len(deviating))


def _lost(
    law: TrunkLaw, before: Sequence[int], tokens: Sequence[int], answer: Answer, place: int, tolerance: Tolerance
) -> list[int]:
    """The model's choices that are missing before a place, if the text goes on after them; none otherwise."""
    rest = tokens[place : place + _num_to_agree(answer, place)]
    if len(rest) < _num_to_agree(answer, place):
        return []
    missing: list[int] = []
    left = law.most_tokens - len(before) - (len(tokens) - place)  # what a server loses without end cannot all be put in
    for _ in range(min(_MAX_LOST, left)):
        missing.append(int(law.after([*before, *missing])[0].argmax()))
        said = law.after([*before, *missing, *rest[:-1]], len(rest))
        if all(
            row.max() - row[token] <= tolerance.margin
            and _knows_law(answer, place + index, float(row[token]), tolerance) is not False
            for index, (row, token) in enumerate(zip(said, rest, strict=True))
        ):
            return missing
    return []


def _num_to_agree(answer: Answer, place: int) -> int:
    known = place < len(answer.logprobs) and not math.isnan(answer.logprobs[place])
    return _AGREEING if known else _AGREEING_WITHOUT


def _knows_law(answer: Answer, place: int, expected: float, tolerance: Tolerance) -> bool | None:
    """Whether the server gives a token the log-probability that it should have; `None` if it does not say."""
    if place >= len(answer.logprobs) or math.isnan(answer.logprobs[place]):
        return None
    return abs(answer.logprobs[place] - expected) <= tolerance.usual


def _kind(knows_law: bool | None, server_margin: float | None, rank: int, margin: float) -> DepartureKind:
    """What a departure is that is neither a tie nor a token lost."""
    if server_margin == 0.0:  # to its own mind this is the likeliest: it does not know the model's law
        return "other"
    near = rank <= _NEAR_RANK and margin <= _NEAR_GAP
    return "near-miss" if (near if knows_law is None else knows_law) else "other"


def _deviates(answer: Answer, place: int, row: NDArray[np.float64], tolerance: Tolerance) -> bool:
    if place >= len(answer.tops):
        return False
    top = [(token, logprob) for token, logprob in answer.tops[place] if isinstance(token, int)]
    errors = pair_errors(top, [float(row[token]) for token, _ in top])
    return any(abs(error) > tolerance.margin for error in errors[:1])


def _wrong_end(
    law: TrunkLaw, text: Sequence[int], position: int, end_ids: Collection[int], tolerance: Tolerance, number: int
) -> list[Departure]:
    """Whether the model would have ended the text where the server did."""
    row = law.after(text)[0]
    best = int(row.argmax())
    margin = float(row[best]) - max((float(row[token]) for token in end_ids if token < len(row)), default=-math.inf)
    if best in end_ids:
        return []
    return [
        Departure(
            prompt=number,
            position=position,
            server_token="end",
            model_token=best,
            margin=margin,
            server_margin=None,
            kind="tie" if margin <= tolerance.margin else "other",
        )
    ]


def compare_by_plain(
    plain: Answer, answer: Answer, tolerance: Tolerance, number: int, evidence: NearMissEvidence
) -> Walk:
    """Compare an answer with a plain server's, up to where they part; beyond, they are different texts.

    Args:
        plain: what plain decoding wrote, with log-probabilities.
        answer: what is checked.
        tolerance: what is a tie.
        number: of the prompt, for the report.
        evidence: is told of each place.
    """
    ours, theirs = plain.tokens or (), answer.tokens or ()
    num_deviating = 0
    for place, (own, token) in enumerate(zip(ours, theirs, strict=False)):
        said = dict(plain.tops[place]) if place < len(plain.tops) else {}
        if place < len(answer.tops):
            shared = [(candidate, value) for candidate, value in answer.tops[place] if candidate in said]
            errors = pair_errors(shared, [said[candidate] for candidate, _ in shared])
            num_deviating += bool(errors) and abs(errors[0]) > tolerance.margin
        if said and place < len(plain.logprobs):
            evidence.add(plain.logprobs[place] - np.asarray(sorted(said.values())[:-1]), token != own)
        if token == own:
            continue
        # a token that is not among the likeliest is less likely than the last of them
        least = min(said.values(), default=-math.inf)
        margin = plain.logprobs[place] - said.get(token, least) if said else math.inf
        kind: DepartureKind = "tie" if margin <= tolerance.margin else "other"
        if kind == "other":
            knows = _knows_law(answer, place, said.get(token, math.nan), tolerance)
            lost = any(
                _goes_on(plain, place + missing, answer, place, tolerance) for missing in range(1, _MAX_LOST + 1)
            )
            rank = list(said).index(token) + 1 if token in said else len(said) + _NEAR_RANK
            kind = "lost" if lost and not knows else _kind(knows, answer.own_margin(place), rank, margin)
        departure = Departure(
            prompt=number, position=place, server_token=token, model_token=own, margin=margin,
            server_margin=answer.own_margin(place), kind=kind,
        )  # fmt: skip
        return Walk(departures=(departure,), num_places=place + 1, num_deviating=num_deviating)
    shorter = min(len(ours), len(theirs))
    departures: tuple[Departure, ...] = ()
    if len(ours) != len(theirs) and plain.is_whole and answer.is_whole:
        # the end has no name in the lists, but is among what they say is as likely as the token that was written
        margin = _lead(plain if len(ours) > shorter else answer, shorter)
        departures = (
            Departure(
                prompt=number, position=shorter,
                server_token=theirs[shorter] if len(theirs) > shorter else "end",
                model_token=ours[shorter] if len(ours) > shorter else "end",
                margin=margin, server_margin=None, kind="tie" if margin <= tolerance.margin else "other",
            ),
        )  # fmt: skip
    return Walk(departures=departures, num_places=shorter, num_deviating=num_deviating)


def _lead(answer: Answer, place: int) -> float:
    """Nats by which a written token is likelier than any other, by its server; endless if that does not say."""
    if answer.tokens is None or place >= min(len(answer.tops), len(answer.logprobs)):
        return math.inf
    others = [value for token, value in answer.tops[place] if token != answer.tokens[place]]
    return answer.logprobs[place] - max(others) if others else math.inf


def _goes_on(plain: Answer, own_place: int, answer: Answer, place: int, tolerance: Tolerance) -> bool:
    """Whether an answer goes on from a place as the plain one does from another."""
    num = _num_to_agree(answer, place)
    ours = (plain.tokens or ())[own_place : own_place + num]
    if len(ours) < num or ours != (answer.tokens or ())[place : place + num]:
        return False
    expected = plain.logprobs[own_place] if own_place < len(plain.logprobs) else math.nan
    return _knows_law(answer, place, expected, tolerance) is not False
