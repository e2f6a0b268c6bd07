"""Which of the usual mistakes, undone, makes heads guess better, and by how much.

Remedies are compared place by place on the same texts, by the log-probability that heads give to what the trunk
chose: it shows in a few hundred tokens what a count of right guesses would need thousands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.config import TrunkConfig
from headstart.measure.doctor.agreement import Agreement, Examiner
from headstart.measure.doctor.patient import Patient
from headstart.measure.doctor.remedies import WHOLE_VOCABULARY, possible_remedies
from headstart.measure.doctor.texts import WrittenText

# In standard errors. A dozen remedies are tried, and neighbouring places are alike: 3 would be met by chance.
LEAST_Z = 4.0
# Nats at a place; what helps less is not worth a change.
LEAST_GAIN = 0.01
# Heads that are right more rarely still are not restored, only wrong in another way.
LEAST_RIGHT = 0.1
# A draft vocabulary is meant to leave out a little, and the whole one is always likelier. The first ids of all, though,
# are what is guessed among when the ids of the training were lost.
MOST_LEFT_OUT = 0.15
# Of places that share a guess, so many fewer right ones than by the best translation mean that the ids are wrong.
LEAST_TRANSLATION_GAIN = 0.1

TRANSLATION = "vocabulary_map"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One remedy and what it did.

    Attributes:
        name: of the remedy.
        mistake: what was wrong, if it helps.
        change: what to do about it.
        right: how often the likeliest guess is right with it, of depth 1, 2.
        gain_nats: log-probability gained at a place, over all depths; 0 where right guesses were counted instead, for
            another map of the vocabulary and another template.
        z: the gain, of whichever was judged by, in standard errors of itself.
        helps: whether that is enough to act on.
    """

    name: str
    mistake: str
    change: str
    right: tuple[float, ...]
    gain_nats: float
    z: float
    helps: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What was found.

    Attributes:
        num_places: guesses that were judged.
        right: how often the likeliest guess is right as things are, of depth 1, 2.
        left_out: share of what the trunk writes that the draft vocabulary leaves out.
        trials: all that was tried.
        found: the one that helps most; `None` if none does.
    """

    num_places: int
    right: tuple[float, ...]
    left_out: float
    trials: tuple[Trial, ...]
    found: Trial | None


def diagnose(
    examiner: Examiner,
    patient: Patient,
    trunk: TrunkConfig,
    texts: Sequence[WrittenText],
    show: Callable[[float], None] = lambda share: None,
) -> Diagnosis:
    """Try every remedy by itself.

    Args:
        examiner: runs heads.
        patient: the heads as they are.
        trunk: what it looks like.
        texts: that the trunk wrote; at least one.
        show: called with the share that is done.
    """
    before = examiner.measure(patient, texts)
    ids = patient.vocabulary
    left_out = 0.0 if ids is None else float(1.0 - np.isin(before.targets, ids).mean())
    may_widen = ids is not None and (left_out > MOST_LEFT_OUT or np.array_equal(ids, np.arange(len(ids))))
    remedies = [remedy for remedy in possible_remedies(patient, trunk) if remedy.name != WHOLE_VOCABULARY or may_widen]
    trials = []
    for number, remedy in enumerate(remedies):
        show((number + 1) / (len(remedies) + 1))
        after = examiner.measure(remedy.patient, texts)
        gain, z = _gain(before.log_probability.sum(axis=1), after.log_probability.sum(axis=1))
        # guesses that are less sure of themselves can be likelier without being right more often
        is_right = after.shares[0] >= LEAST_RIGHT and after.right.sum() >= before.right.sum()
        trials.append(
            Trial(
                name=remedy.name,
                mistake=remedy.mistake,
                change=remedy.change,
                right=after.shares,
                gain_nats=gain,
                z=z,
                helps=bool(is_right and gain >= LEAST_GAIN and z >= LEAST_Z),
            )
        )
    if ids is not None and patient.config.own_unembedding:
        trials.append(_translated(before))
    found = max((trial for trial in trials if trial.helps), key=lambda trial: trial.gain_nats, default=None)
    return Diagnosis(
        num_places=len(before.right), right=before.shares, left_out=left_out, trials=tuple(trials), found=found
    )


def _gain(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """The mean difference at a place, and that in standard errors."""
    difference = after - before
    spread = float(difference.std())
    mean = float(difference.mean())
    return mean, mean * math.sqrt(len(difference)) / spread if spread > 0.0 else 0.0


def _translated(before: Agreement) -> Trial:
    """Whether guesses are right once they are translated: each to what the trunk mostly chose in its place.

    The translation is learnt at every second place and judged at the others. If the map from guesses to ids is right,
    none can be better.
    """
    learnt: dict[int, dict[int, int]] = {}
    for guess, target in zip(before.guesses[::2].tolist(), before.targets[::2].tolist(), strict=True):
        counts = learnt.setdefault(guess, {})
        counts[target] = counts.get(target, 0) + 1
    translation = {guess: max(counts, key=counts.__getitem__) for guess, counts in learnt.items()}
    judged = [
        (float(right), float(translation[guess] == target))
        for guess, target, right in zip(
            before.guesses[1::2].tolist(), before.targets[1::2].tolist(), before.right[1::2, 0].tolist(), strict=True
        )
        if guess in translation
    ]
    directly, translated = np.array(judged, np.float64).reshape(-1, 2).T
    gain, z = _gain(directly, translated) if len(judged) else (0.0, 0.0)
    return Trial(
        name=TRANSLATION,
        mistake="The draft vocabulary does not say which tokens the heads' own unembedding stands for.",
        change='Put the token ids of the training, in the order of the unembedding\'s rows, into "vocabulary".',
        right=(float(translated.mean()) if len(judged) else 0.0,),
        gain_nats=0.0,
        z=z,
        helps=gain >= LEAST_TRANSLATION_GAIN and z >= LEAST_Z,
    )
