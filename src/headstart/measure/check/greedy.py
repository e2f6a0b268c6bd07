"""Greedy answers: is every token the model's choice, or tied with it?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headstart.measure.check.answers import Answer, Asker
from headstart.measure.check.departures import Departure, Walk
from headstart.measure.check.evidence import NearMissEvidence
from headstart.measure.check.faults import Fault, FaultKind
from headstart.measure.check.findings import Finding
from headstart.measure.check.reference import FreshComparison, Prompt, Reference
from headstart.measure.check.tolerance import ActivationBits, Tolerance, find_tolerance

_MAX_LISTED = 50
# One may be a slip of two computations of the same logits.
_MIN_AGAINST_OWN = 2
# Places at which the server is asked afresh: some in every answer, and so many together if answers are few.
_FRESH_CUTS, _FRESH_PLACES = 3, 24
_KINDS: dict[str, FaultKind] = {
    "lost": "token lost after a rejection",
    "near-miss": "near-miss accepted",
    "other": "stale cache row",
}


def compare_fresh(
    asker: Asker,
    reference: Reference,
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
    *,
    num_layers: int,
    activation_bits: ActivationBits,
    false_alarm: float,
) -> tuple[Tolerance, Finding]:
    """Find how far the server's logits are from the reference's where no draft has a part in them.

    Args:
        asker: the server.
        reference: what is right.
        prompts: what was asked.
        answers: greedy ones.
        num_layers: of the model.
        activation_bits: of the coarser of the two engines.
        false_alarm: probability that rounding is taken for a fault anywhere in the run.
    """
    fresh = FreshComparison()
    num_cuts = max(_FRESH_CUTS, -(-_FRESH_PLACES // len(prompts)))
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = answer.tokens or ()
        for cut in sorted({number * len(tokens) // num_cuts for number in range(num_cuts)}):
            reference.compare_fresh(asker, prompt, tokens[:cut], fresh)
    num_places = sum(len(answer.tokens or ()) + 1 for answer in answers) + len(fresh.margins)
    tolerance = find_tolerance(
        fresh.errors,
        own_errors=fresh.own_errors,
        own_margins=fresh.own_margins,
        logit_spread=fresh.spread,
        num_layers=num_layers,
        activation_bits=activation_bits,
        num_places=num_places,
        false_alarm=false_alarm,
    )
    figures = {**tolerance.to_json(), "num_answers": len(fresh.margins), "worst_margin": max(fresh.margins, default=0)}
    faults: list[Fault] = []
    if not tolerance.is_same_model:
        evidence = (
            f"Where nothing was drafted, log-probabilities differ by {tolerance.deviation:.3g} nats (standard "
            f"deviation), more than {activation_bits}-bit arithmetic explains. Other weights or another quantisation?"
        )
        faults.append(Fault(kind="other logits", evidence=evidence))
    wrong = [margin for margin in fresh.margins if margin > tolerance.margin]
    if wrong and not faults:
        evidence = (
            f"{len(wrong)} of {len(fresh.margins)} first tokens are not the model's choice, by up to {max(wrong):.3g} "
            f"nats; {tolerance.margin:.3g} would be a tie."
        )
        faults.append(Fault(kind="other logits", evidence=evidence))
    untested = None if fresh.margins else "The server tells no tokens that can be compared."
    return tolerance, Finding(test="fresh answers", figures=figures, faults=tuple(faults), untested=untested)


def judge_greedy(
    reference: Reference,
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
    tolerance: Tolerance,
    false_alarm: float,
) -> Finding:
    """Examine every greedy answer, place by place.

    Args:
        reference: what is right.
        prompts: what was asked.
        answers: what came.
        tolerance: what is a tie.
        false_alarm: probability that ties are taken for near-misses because they are many.
    """
    evidence = NearMissEvidence(tolerance.scale, tolerance.step)
    walks = [
        reference.walk(prompt, answer, tolerance, number, evidence)
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        if answer.tokens is not None
    ]
    departures = [departure for walk in walks for departure in walk.departures]
    against_own = _margins_against_own(answers, tolerance)
    figures = {
        "num_answers": len(walks),
        "num_places": sum(walk.num_places for walk in walks),
        "num_unread": sum(not answer.is_whole for answer in answers),
        "num_deviating": sum(walk.num_deviating for walk in walks),
        "num_ties": sum(departure.kind == "tie" for departure in departures),
        "num_broken": sum(departure.kind != "tie" for departure in departures),
        "num_against_own": len(against_own),
        "log_evidence_of_ties": evidence.log_evidence,
        "departures": [departure.to_json() for departure in departures[:_MAX_LISTED]],
    }
    faults = _faults(walks, tolerance)
    if not faults and len(against_own) >= _MIN_AGAINST_OWN:
        told = (
            f"{len(against_own)} of {figures['num_places']} tokens were written though, by the server's own "
            f"log-probabilities, another is likelier, by up to {max(against_own):.3g} nats."
        )
        faults = (Fault(kind="near-miss accepted", evidence=told),)
    if not faults and evidence.log_evidence >= math.log(1.0 / false_alarm):
        # who keeps near-misses knows better
        num_unaware = sum(departure.server_margin == 0.0 for departure in departures)
        unaware = num_unaware > len(departures) / 2
        told = (
            f"{figures['num_ties']} of {figures['num_places']} tokens are not the likeliest, each nearly, but together "
            f"more than rounding explains: the evidence is e**{evidence.log_evidence:.1f} to 1. "
            f"The server itself takes {num_unaware} of them for the likeliest."
        )
        faults = (Fault(kind="stale cache row" if unaware else "near-miss accepted", evidence=told),)
    untested = None if walks else "The server tells neither token ids nor log-probabilities, so tokens are not known."
    return Finding(test="greedy", figures=figures, faults=faults, untested=untested)


def _margins_against_own(answers: Sequence[Answer], tolerance: Tolerance) -> list[float]:
    """By how much tokens are not the likeliest by the server's own word, which no rounding between engines explains."""
    margins = [answer.own_margin(place) for answer in answers for place in range(len(answer.best_logprobs))]
    return [margin for margin in margins if margin is not None and margin > tolerance.slip]


def _faults(walks: Sequence[Walk], tolerance: Tolerance) -> tuple[Fault, ...]:
    by_kind: dict[str, list[Departure]] = {kind: [] for kind in _KINDS}
    for walk in walks:
        for departure in walk.departures:
            if departure.kind != "tie":
                by_kind[departure.kind].append(departure)
            if departure.kind == "other":
                break  # what the server has seen is not known from here on
    # the one that is seen most: by chance, some departures look like those of another fault
    kind, listed = max(by_kind.items(), key=lambda item: len(item[1]))
    num_deviating = sum(walk.num_deviating for walk in walks)
    if listed and kind == "near-miss" and num_deviating:
        kind = "other"  # who keeps near-misses still knows the right log-probabilities
    if listed:
        return (Fault(kind=_KINDS[kind], evidence=_evidence(kind, listed, tolerance)),)
    if not num_deviating:
        return ()
    evidence = (
        f"At {num_deviating} places the server's log-probabilities are not the model's, though its first ones are: "
        "they depend on how the text was written."
    )
    return (Fault(kind="stale cache row", evidence=evidence),)


def _evidence(kind: str, departures: Sequence[Departure], tolerance: Tolerance) -> str:
    first = departures[0]
    where = (
        f"{len(departures)} times, first in answer {first.prompt} at token {first.position}: {first.server_token!r} "
        f"instead of {first.model_token!r}, {first.margin:.3g} nats likelier (a tie is within {tolerance.margin:.3g})"
    )
    told = {
        "lost": "The model's choice is missing and the text goes on after it",
        "near-miss": "A token was written that is not the likeliest",
        "other": "A token was written that is not the likeliest, from log-probabilities that are not the model's",
    }
    return f"{told[kind]}: {where}."
