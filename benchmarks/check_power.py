"""Which wrong ways of drawing `headstart check` finds, after how many texts: by simulation, without a model.

    python benchmarks/check_power.py --json

Texts go on as the check's own do: one of four words, whose probabilities depend on the two before, then a separator;
and a few percent of anything else. All tokens but the first of a text are drawn with a distribution that differs from
the right one by so much (total variation: half of the sum of the differences of probabilities). Printed is the share of
runs in which the difference was found, and the median of the texts that it took.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from json import dumps
from typing import Annotated, Any, Literal

import cyclopts
import numpy as np
from numpy.typing import NDArray

from headstart import __version__
from headstart.measure.check.answers import NUM_TOP, Answer
from headstart.measure.check.law_reference import LawReference
from headstart.measure.check.plain_reference import PlainReference
from headstart.measure.check.probes import every_run_once
from headstart.measure.check.reference import Prompt, Sample
from headstart.measure.check.sampling import TEMPERATURES
from headstart.measure.check.tolerance import Tolerance

Floats = NDArray[np.float64]
Spoil = Callable[[Floats, int | None, float], Floats]
Mode = Literal["model", "plain server"]

VOCAB_SIZE, WORDS, SEPARATOR = 64, 4, 4
NAMES = ["a", "b", "c", "d", ",", *(f"x{number}" for number in range(5, VOCAB_SIZE))]
_OTHERS = 0.03
_TOKENS = 16
_CHECKED_EVERY = 8
_ROUNDING = 0.02
_NEEDED = float(np.log(4.0 / 1e-3))  # a quarter of the false alarms of a run

app = cyclopts.App(name="check_power", help=__doc__, help_format="plaintext")


class Words:
    """A law over texts of words and separators, in the terms of `TrunkLaw`."""

    vocab_size = VOCAB_SIZE

    def after(self, text: Sequence[int], num_places: int = 1) -> Floats:
        """Log-probabilities [num_places, V]."""
        first = len(text) - num_places + 1
        return np.stack([self._row(text[:end]) for end in range(first, len(text) + 1)])

    def _row(self, text: Sequence[int]) -> Floats:
        share = np.full(VOCAB_SIZE, _OTHERS / VOCAB_SIZE)
        if text[-1] == SEPARATOR:
            source = np.random.default_rng([token for token in text[-4:] if token != SEPARATOR])
            weights = np.exp(source.normal(0.0, 0.7, WORDS))
            share[:WORDS] += (1.0 - _OTHERS) * weights / weights.sum()
        else:
            share[SEPARATOR] += 1.0 - _OTHERS
        result: Floats = np.log(share)
        return result


def _kept_too_often(share: Floats, guess: int | None, distance: float) -> Floats:
    """What a drafter guesses comes too often."""
    target = np.zeros(VOCAB_SIZE)
    target[int(share.argmax()) if guess is None else guess] = 1.0
    return _towards(share, target, distance)


def _anything(share: Floats, guess: int | None, distance: float) -> Floats:
    """Now and then it is any token at all."""
    return _towards(share, np.full(VOCAB_SIZE, 1.0 / VOCAB_SIZE), distance)


def _sharper(share: Floats, guess: int | None, distance: float) -> Floats:
    """The likelier tokens come too often."""
    return _towards(share, share**4 / (share**4).sum(), distance)


FAULTS: dict[str, Spoil] = {
    "the guess is kept too often": _kept_too_often,
    "any token now and then": _anything,
    "likely tokens too often": _sharper,
}


def _towards(share: Floats, target: Floats, distance: float) -> Floats:
    """So far on the way to another distribution, or all of it if that is nearer."""
    whole = float(np.abs(target - share).sum()) / 2.0
    part = min(distance / whole, 1.0) if whole else 0.0
    result: Floats = (1.0 - part) * share + part * target
    return result


class _Nobody:
    """Stands in for a plain server, whose answers are made here."""

    url = "nowhere"


def texts_until_found(mode: Mode, spoil: Spoil, distance: float, most: int, seed: int) -> int | None:
    """Texts after which the check stops, or `None` if it does not within `most`."""
    source = random.Random(seed)
    law = Words()
    tolerance = Tolerance(
        margin=0.2, deviation=_ROUNDING, largest=1.0, step=0.0, own_margin=None, basis="measured", num_measured=50
    )  # fmt: skip
    reference: Any = (
        LawReference(law, (), lambda: ())  # type: ignore[arg-type] # all that is asked of it
        if mode == "model"
        else PlainReference(_Nobody(), _TOKENS)  # type: ignore[arg-type] # is asked nothing
    )
    test = reference.sample_test(tolerance)
    prompts = [
        [token for word in every_run_once(WORDS, 3, source) for token in (word, SEPARATOR)] for _ in range(WORDS)
    ]
    for number in range(most):
        turn, place = divmod(number, len(prompts))
        prompt, temperature = prompts[place], TEMPERATURES[turn % len(TEMPERATURES)]
        answer, beside = (
            _draw(law, prompt, temperature, source, own, distance, as_text=mode != "model") for own in (spoil, None)
        )
        asked: Prompt = tuple(prompt) if mode == "model" else "".join(NAMES[token] for token in prompt)
        sample = Sample(prompt=asked, temperature=temperature, seed=number, max_tokens=_TOKENS)
        test.add(sample, answer, beside)
        # the evidence shares its fortune with that of copies, of which there are none
        if (number + 1) % _CHECKED_EVERY == 0 and test.log_evidence - np.log(2.0) >= _NEEDED:
            return number + 1
    return None


def _draw(
    law: Words,
    prompt: Sequence[int],
    temperature: float,
    source: random.Random,
    spoil: Spoil | None,
    distance: float,
    *,
    as_text: bool,
) -> Answer:
    text = list(prompt)
    logprobs, tops = [], []
    for place in range(_TOKENS):
        row = law.after(text)[0]
        share = np.exp(row / temperature)
        share /= share.sum()
        if spoil is not None and place:
            share = spoil(share, _guess(text), distance)
        token = int(np.searchsorted(np.cumsum(share), source.random() * share.sum(), side="right"))
        text.append(token)
        logprobs.append(float(row[token]))
        tops.append(tuple((NAMES[best], float(row[best])) for best in np.argsort(-row, kind="stable")[:NUM_TOP]))
    written = text[len(prompt) :]
    tokens = tuple(NAMES[token] for token in written) if as_text else tuple(written)
    return Answer(text="", tokens=tokens, logprobs=tuple(logprobs), tops=tuple(tops), finish_reason="length")


def _guess(text: Sequence[int]) -> int | None:
    """What followed the last three tokens when they were last there: not quite what the check looks up."""
    end = list(text[-3:])
    return next((text[i + 3] for i in range(len(text) - 4, -1, -1) if list(text[i : i + 3]) == end), None)


@app.default
def main(
    *,
    distances: Annotated[str, cyclopts.Parameter(help="Total variations, with commas between.")] = "0.02,0.05,0.1,0.2",
    samples: Annotated[int, cyclopts.Parameter(help="Texts drawn at most.")] = 400,
    runs: Annotated[int, cyclopts.Parameter(help="For each figure.")] = 20,
    json: Annotated[bool, cyclopts.Parameter(help="Print a JSON document last.")] = False,
) -> int:
    """Draw, and see when it is found."""
    rows: list[dict[str, Any]] = []
    modes: tuple[Mode, ...] = ("model", "plain server")
    for mode in modes:
        for name, spoil in FAULTS.items():
            for distance in map(float, distances.split(",")):
                found = [texts_until_found(mode, spoil, distance, samples, seed) for seed in range(runs)]
                sooner = [count for count in found if count is not None]
                row = {
                    "held_to": mode,
                    "fault": name,
                    "distance": distance,
                    "found": len(sooner) / runs,
                    "median_texts": statistics.median(sooner) if len(sooner) > runs / 2 else None,
                }
                rows.append(row)
                print(*row.values(), sep="\t", flush=True)
    if json:
        print(dumps({"rows": rows, "samples": samples, "runs": runs, "tokens": _TOKENS, "headstart": __version__}))
    return 0


if __name__ == "__main__":
    sys.exit(app())
