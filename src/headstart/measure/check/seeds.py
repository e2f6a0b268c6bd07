"""Seeds: do requests with different ones, or none, draw independently, alone and at once?"""

from __future__ import annotations

import math
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor

from headstart.measure.check.answers import Answer, Asker
from headstart.measure.check.evidence import RepeatEvidence
from headstart.measure.check.faults import Fault
from headstart.measure.check.findings import Finding
from headstart.measure.check.reference import Prompt, Reference
from headstart.measure.check.tolerance import Tolerance

_NUM_ALONE, _NUM_AT_ONCE, _NUM_UNSEEDED = 6, 8, 4
_TOKENS = 16
# Seeds apart from each other in every bit, for servers that use them poorly.
_SEED_STEP = 0x9E3779B1


def seed_of(base: int, number: int) -> int:
    """The seed of a request, below 2**31, which every server takes."""
    return (base + (number + 1) * _SEED_STEP) % (1 << 31)


def check_seeds(
    asker: Asker, reference: Reference, prompt: Prompt, *, seed: int, tolerance: Tolerance, false_alarm: float
) -> Finding:
    """Whether requests with different seeds, or with none, draw independently, alone and at once.

    Args:
        asker: the server.
        reference: what is right.
        prompt: one whose continuation is uncertain.
        seed: of the seeds.
        tolerance: what is a tie.
        false_alarm: probability that independent texts are taken for copies.
    """

    def draw(own_seed: int | None) -> Answer:
        return asker.ask(prompt, _TOKENS, temperature=1.0, seed=own_seed)

    seeds = [seed_of(seed, number) for number in range(_NUM_ALONE + _NUM_AT_ONCE)]
    alone = [draw(own) for own in seeds[:_NUM_ALONE]]
    again = draw(seeds[0])
    with ThreadPoolExecutor(_NUM_AT_ONCE) as pool:
        at_once = list(pool.map(draw, seeds[_NUM_ALONE:]))
    unseeded = [draw(None) for _ in range(_NUM_UNSEEDED)]
    evidence = RepeatEvidence()
    repeats: list[Answer] = []
    groups = {"alone": alone, "at once": at_once, "without a seed": unseeded}
    num_repeats = {}
    for name, group in groups.items():
        before = evidence.num_repeats
        for answer in group:
            log_probability = reference.log_probability(prompt, answer)
            if log_probability is None:
                return Finding(test="seeds", untested="The server tells no log-probabilities of what it draws.")
            if evidence.add(key_of(answer), log_probability):
                repeats.append(answer)
        num_repeats[name] = evidence.num_repeats - before
    figures = {
        "num_texts": sum(map(len, groups.values())),
        "num_repeats": num_repeats,
        "log_evidence": evidence.log_evidence,
        "log_evidence_needed": math.log(1.0 / false_alarm),
        "same_seed_same_text": key_of(again) == key_of(alone[0]),
    }
    if evidence.log_evidence < math.log(1.0 / false_alarm):
        return Finding(test="seeds", figures=figures)
    told = ", ".join(f"{count} {name}" for name, count in num_repeats.items() if count)
    margins = [margin for answer in repeats for margin in reference.later_margins(prompt, answer)]
    if margins and max(margins) <= tolerance.margin:
        fault = Fault(
            kind="argmax at temperature 1",
            evidence=f"Texts with different seeds are the same ({told}), and all their tokens are the likeliest.",
        )
    else:
        fault = Fault(
            kind="seed shared",
            evidence=f"Texts with different seeds are the same ({told}), which the model makes as good as impossible.",
        )
    return Finding(test="seeds", figures=figures, faults=(fault,))


def key_of(answer: Answer) -> Hashable:
    """What makes an answer a copy of another."""
    return (answer.tokens, answer.text)
