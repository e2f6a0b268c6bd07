"""A heads file from opening to verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint
from headstart.errors import ConfigError, UnsupportedError
from headstart.measure.doctor.agreement import Examiner
from headstart.measure.doctor.diagnosis import LEAST_Z, Diagnosis, Trial, diagnose
from headstart.measure.doctor.patient import OpenedPatient, Patient, open_patient
from headstart.measure.doctor.texts import FRAMES, write_texts

Verdict = Literal["healthy", "mistake", "unexplained"]

# Of what the file says was measured. That counts second guesses and is of other prompts, so the likeliest guess alone
# reaches some 0.6 to 0.9 of it.
FAR_BELOW = 0.4
# Share of right guesses that another way to ask must bring; texts differ, and so do their difficulties.
LEAST_FRAME_GAIN = 0.15
LEAST_TOKENS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What became of the examination.

    Attributes:
        verdict: "healthy"; "mistake", which `found` tells; or "unexplained": far below what the file says, for no usual
            reason.
        found: the mistake and its remedy.
        diagnosis: the figures.
        expected: conditional acceptance of depth 1, 2, ... that the file says was measured; empty if it does not say.
        notes: what else a user should know.
    """

    verdict: Verdict
    found: Trial | None
    diagnosis: Diagnosis
    expected: tuple[float, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def examine(
    checkpoint: Checkpoint,
    path: Path,
    *,
    num_tokens: int = 384,
    threads: int | None = None,
    frame: str | None = None,
    show: Callable[[float], None] = lambda share: None,
) -> Report:
    """Find out whether a heads file is run as it was trained.

    Args:
        checkpoint: the model.
        path: the heads file.
        num_tokens: that the model writes for it, at least `LEAST_TOKENS`.
        threads: CPU threads; by default as many as the process may use at once.
        frame: how the model is asked, with braces for the question; by default its own template.
        show: called with the share that is done.

    Raises:
        ConfigError: too few tokens, or a frame without braces.
        CheckpointError: the file is damaged or does not fit the model.
        UnsupportedError: a model that this build cannot run, or whose answers are too short to judge by.
    """
    if num_tokens < LEAST_TOKENS:
        raise ConfigError(f"{num_tokens} tokens are too few to judge by: take {LEAST_TOKENS} or more, such as 384.")
    if frame is not None and "{}" not in frame:
        raise ConfigError(f"The frame {frame!r} has no place for a question: put {{}} there.")
    opened = open_patient(path, checkpoint)
    trunk = read_config(checkpoint)[1]
    examiner = Examiner(checkpoint, threads)
    texts = write_texts(examiner.trunk(opened.patient.config.taps), checkpoint.tokenizer(), num_tokens, frame)
    if sum(len(text.tokens) - text.num_prompt for text in texts) < LEAST_TOKENS // 2:
        raise UnsupportedError("The model answers with hardly a word, so nothing can be judged. Is it the right file?")
    diagnosis = diagnose(examiner, opened.patient, trunk, texts, show)
    expected = _expected(opened.fitted.file.header.measured)
    is_low = bool(expected) and diagnosis.right[0] < FAR_BELOW * expected[0]
    found = _mended_offsets(opened, diagnosis) or diagnosis.found
    other_template = any("chat template" in note for note in opened.fitted.notes)
    # what helps and leaves guesses far below what they were explains little: another form may explain more
    is_explained = found is not None and not (expected and found.right[0] < FAR_BELOW * expected[0])
    if not is_explained and (is_low or other_template or frame is not None):
        others: dict[str, str | None] = {**FRAMES} if frame is None else {"the model's own template": None, **FRAMES}
        form = _other_frame(examiner, checkpoint, opened.patient, diagnosis, num_tokens, others)
        if form is not None and (found is None or form.right[0] > found.right[0]):
            found = form
    verdict: Verdict = "mistake" if found else "unexplained" if is_low else "healthy"
    return Report(verdict=verdict, found=found, diagnosis=diagnosis, expected=expected, notes=opened.fitted.notes)


def _expected(measured: Mapping[str, Any]) -> tuple[float, ...]:
    """What a file says was measured; it is free to say anything."""
    shares = measured.get("conditional_acceptance")
    if not isinstance(shares, list) or not all(isinstance(share, float | int) for share in shares):
        return ()
    return tuple(float(share) for share in shares)


def _mended_offsets(opened: OpenedPatient, diagnosis: Diagnosis) -> Trial | None:
    """The mistake that had to be undone before the file could be opened at all."""
    if opened.refusal is None:
        return None
    return Trial(
        name="vocabulary_plus_index",
        mistake=f"The draft vocabulary holds offsets, not token ids, and the file is refused: {opened.refusal}",
        change="Add its place to every entry of the draft vocabulary.",
        right=diagnosis.right,
        gain_nats=0.0,
        z=0.0,
        helps=True,
    )


def _other_frame(
    examiner: Examiner,
    checkpoint: Checkpoint,
    patient: Patient,
    diagnosis: Diagnosis,
    num_tokens: int,
    frames: Mapping[str, str | None],
) -> Trial | None:
    """Whether the heads are right far more often if the model is asked in another way; if so, the best."""
    tokenizer = checkpoint.tokenizer()
    best: Trial | None = None
    for name, frame in frames.items():
        texts = write_texts(examiner.trunk(patient.config.taps), tokenizer, num_tokens, frame)
        if not texts:
            continue
        after = examiner.measure(patient, texts)
        gain = after.shares[0] - diagnosis.right[0]
        # the places are not the same ones, so shares are compared, not place by place
        variance = _variance(after.shares[0], len(after.right)) + _variance(diagnosis.right[0], diagnosis.num_places)
        z = gain / math.sqrt(variance) if variance > 0 else 0.0
        if gain >= LEAST_FRAME_GAIN and z >= LEAST_Z and (best is None or after.shares[0] > best.right[0]):
            form = name if frame is None else f"the form {frame!r} ({name})"
            best = Trial(
                name="template",
                mistake="The heads were trained on texts of another form than the one the model is asked in.",
                change=f"Ask in {form}, or train on with texts as they are asked for here (headstart graft).",
                right=after.shares,
                gain_nats=0.0,
                z=z,
                helps=True,
            )
    return best


def _variance(share: float, number: int) -> float:
    return share * (1 - share) / number
