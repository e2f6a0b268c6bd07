"""Drawn answers: do tokens have the model's distribution, in texts in which a drafter guesses?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from headstart.measure.check.answers import Answer, Asker
from headstart.measure.check.evidence import RepeatEvidence, log_mean_exp
from headstart.measure.check.faults import Fault
from headstart.measure.check.findings import Finding
from headstart.measure.check.reference import Prompt, RankShares, Reference, Sample
from headstart.measure.check.seeds import key_of, seed_of
from headstart.measure.check.tolerance import Tolerance

# One, and another: a row of a draft may be given the wrong one.
TEMPERATURES = (1.0, 0.7)
# Servers batch, and are quicker for it.
_AT_ONCE = 8


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
    test = reference.sample_test(tolerance)
    copies: defaultdict[tuple[Prompt, float], RepeatEvidence] = defaultdict(RepeatEvidence)
    needed = math.log(1.0 / false_alarm)
    num_drawn = 0
    log_evidence = log_evidence_of_copies = 0.0

    def draw(sample: Sample) -> tuple[Sample, Answer, Answer | None]:
        answer = asker.ask(sample.prompt, num_tokens, temperature=sample.temperature, seed=sample.seed)
        return sample, answer, test.ask_beside(sample)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        samples = list(_samples(prompts, num_texts, num_tokens, seed))
        for start in range(0, num_texts, _AT_ONCE):
            for sample, answer, beside in pool.map(draw, samples[start : start + _AT_ONCE]):
                if answer.tokens is None:
                    return Finding(test="distribution", untested="The server tells no tokens of what it draws.")
                test.add(sample, answer, beside)
                log_probability = reference.log_probability(sample.prompt, answer, sample.temperature)
                if log_probability is not None:
                    copies[sample.prompt, sample.temperature].add(key_of(answer), log_probability)
                num_drawn += 1
            log_evidence_of_copies = sum(evidence.log_evidence for evidence in copies.values())
            log_evidence = log_mean_exp((test.log_evidence, log_evidence_of_copies))
            progress(num_drawn / num_texts)
            if log_evidence >= needed:
                break
    shares = test.shares
    figures = {
        "num_texts": num_drawn,
        "num_draws": test.num_draws,
        "log_evidence": log_evidence,
        "log_evidence_of_copies": log_evidence_of_copies,
        "log_evidence_needed": needed,
        "detectable_nats": needed / max(test.num_draws, 1) + tolerance.deviation**2,
        "rank_shares": {"drawn": list(shares.drawn), "right": list(shares.right)},
    }
    if log_evidence < needed:
        return Finding(test="distribution", figures=figures)
    told = f"after {test.num_draws} tokens the evidence against the right distribution is e**{log_evidence:.1f} to 1"
    if test.is_argmax:
        fault = Fault(kind="argmax at temperature 1", evidence=f"Nearly all tokens are the likeliest; {told}.")
    elif log_evidence_of_copies >= needed:
        fault = Fault(kind="seed shared", evidence=f"Texts with different seeds are the same; {told}.")
    else:
        fault = Fault(kind="draft distribution off", evidence=f"{told[0].upper()}{told[1:]}. {_compared(shares)}")
    return Finding(test="distribution", figures=figures, faults=(fault,))


def _samples(prompts: Sequence[Prompt], num_texts: int, num_tokens: int, seed: int) -> Iterator[Sample]:
    """What to draw: prompts in turn, and each at one temperature after the other."""
    for number in range(num_texts):
        turn, place = divmod(number, len(prompts))
        yield Sample(
            prompt=prompts[place],
            temperature=TEMPERATURES[turn % len(TEMPERATURES)],
            seed=seed_of(seed + 1, number),
            max_tokens=num_tokens,
        )


def _compared(shares: RankShares) -> str:
    """Where the difference is, as far as ranks show it."""
    rank, (drawn, right) = max(
        enumerate(zip(shares.drawn, shares.right, strict=True)), key=lambda item: abs(item[1][0] - item[1][1])
    )
    named = "the likeliest token" if rank == 0 else f"number {rank + 1}"
    what = named if rank < len(shares.drawn) - 1 else f"a token beyond the {rank} likeliest"
    return f"Behind the first token of a text, {what} came {drawn:.1%} of the time, where {right:.1%} is right."
