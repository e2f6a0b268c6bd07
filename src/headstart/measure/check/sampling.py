"""Drawn answers: are seeds kept apart, and do tokens have the model's distribution?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor

from headstart.measure.check.answers import Answer, Asker
from headstart.measure.check.evidence import RepeatEvidence, log_mean_exp
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
            if evidence.add(_key(answer), log_probability):
                repeats.append(answer)
        num_repeats[name] = evidence.num_repeats - before
    figures = {
        "num_texts": sum(map(len, groups.values())),
        "num_repeats": num_repeats,
        "log_evidence": evidence.log_evidence,
        "log_evidence_needed": math.log(1.0 / false_alarm),
        "same_seed_same_text": _key(again) == _key(alone[0]),
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


def _key(answer: Answer) -> Hashable:
    return (answer.tokens, answer.text)


def check_distribution(
    asker: Asker,
    reference: Reference,
    prompts: Sequence[Prompt],
    *,
    num_texts: int,
    num_tokens: int,
    seed: int,
    tolerance: Tolerance,
    false_alarm: float,
    progress: Callable[[float], None],
) -> Finding:
    """Whether drawn tokens have the right distribution; stops as soon as they clearly have not.

    Args:
        asker: the server.
        reference: what is right.
        prompts: are taken in turn, a few of them, so that texts begin alike.
        num_texts: to draw at most.
        num_tokens: of each.
        seed: of the seeds.
        tolerance: of the server's logits.
        false_alarm: probability that a right server fails.
        progress: called with the share that is done.
    """
    test = reference.sample_test(num_tokens, tolerance)
    copies: defaultdict[Prompt, RepeatEvidence] = defaultdict(RepeatEvidence)
    needed = math.log(1.0 / false_alarm)
    num_drawn = 0
    log_evidence = log_evidence_of_copies = 0.0
    while num_drawn < num_texts and log_evidence < needed:
        prompt, own_seed = prompts[num_drawn % len(prompts)], seed_of(seed + 1, num_drawn)
        answer = asker.ask(prompt, num_tokens, temperature=1.0, seed=own_seed)
        if answer.tokens is None:
            return Finding(test="distribution", untested="The server tells no tokens of what it draws.")
        test.add(prompt, own_seed, answer)
        log_probability = reference.log_probability(prompt, answer)
        if log_probability is not None:
            copies[prompt].add(_key(answer), log_probability)
        log_evidence_of_copies = sum(evidence.log_evidence for evidence in copies.values())
        log_evidence = log_mean_exp((test.log_evidence, log_evidence_of_copies))
        num_drawn += 1
        progress(num_drawn / num_texts)
    figures = {
        "num_texts": num_drawn,
        "num_draws": test.num_draws,
        "log_evidence": log_evidence,
        "log_evidence_of_copies": log_evidence_of_copies,
        "log_evidence_needed": needed,
        "detectable_nats": needed / max(test.num_draws, 1) + tolerance.deviation**2,
    }
    if log_evidence < needed:
        return Finding(test="distribution", figures=figures)
    told = f"after {test.num_draws} tokens the evidence against the right distribution is e**{log_evidence:.1f} to 1"
    if test.is_argmax:
        fault = Fault(kind="argmax at temperature 1", evidence=f"Nearly all tokens are the likeliest; {told}.")
    elif log_evidence_of_copies >= needed:
        fault = Fault(kind="seed shared", evidence=f"Texts with different seeds are the same; {told}.")
    else:
        fault = Fault(kind="draft distribution off", evidence=f"{told[0].upper()}{told[1:]}.")
    return Finding(test="distribution", figures=figures, faults=(fault,))
