"""Heads as they are to be run: what a file says of them, which may be wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.heads import HeadsConfig
from headstart.checkpoint import Checkpoint, Tensor
from headstart.checkpoint.safetensors import read_safetensors, read_safetensors_header
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.errors import CheckpointError
from headstart.runtime.open_heads import FittedHeads, open_fitting_heads

_VOCABULARY = "vocabulary"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Patient:
    """Heads under suspicion.

    Attributes:
        config: what they look like.
        weights: their own, by the names of their programs.
        vocabulary: int32 [draft_vocab_size], the ids that they guess; `None` for all.
        token_shift: which token stands beside the state of the token before position t: 0 for that of t, as heads files
            have it; 1 for that of t + 1, -1 for that of t - 1.
    """

    config: HeadsConfig
    weights: Mapping[str, Tensor]
    vocabulary: NDArray[np.int32] | None
    token_shift: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OpenedPatient:
    """A heads file, as far as it can be opened.

    Attributes:
        patient: the heads; with `refusal`, as they are once the vocabulary is mended.
        fitted: the file.
        refusal: why the file is refused as it stands, if its draft vocabulary turned out to hold offsets; else `None`.
    """

    patient: Patient
    fitted: FittedHeads
    refusal: str | None


def open_patient(path: Path, checkpoint: Checkpoint) -> OpenedPatient:
    """Open a heads file for a trunk; one whose vocabulary holds offsets in place of ids is opened with these added.

    Raises:
        CheckpointError: the file is damaged or does not fit the trunk, and offsets are not why.
        UnsupportedError: a model that this build cannot run.
    """
    refusal: CheckpointError | None = None
    try:
        fitted = open_fitting_heads(path, checkpoint)
    except CheckpointError as error:
        refusal = error
        fitted = _open_with_offsets(path, checkpoint, error)
    file = fitted.file
    patient = Patient(
        config=fitted.config,
        weights={name: file.tensor(name) for name in file.shapes},
        vocabulary=file.vocabulary,
    )
    return OpenedPatient(patient=patient, fitted=fitted, refusal=None if refusal is None else str(refusal))


def _open_with_offsets(path: Path, checkpoint: Checkpoint, refusal: CheckpointError) -> FittedHeads:
    """Open a copy whose vocabulary entry i is i more; other programs store the distance from i to its token."""
    try:
        metadata, _ = read_safetensors_header(path)
        tensors = read_safetensors(path)
    except CheckpointError:
        raise refusal from None
    stored = tensors.get(_VOCABULARY)
    if stored is None or stored.kind != "I32" or len(stored.shape) != 1:
        raise refusal
    ids = np.frombuffer(stored.data.tobytes(), "<i4").astype(np.int64) + np.arange(stored.shape[0])
    tensors[_VOCABULARY] = Tensor(_VOCABULARY, stored.shape, "I32", ids.astype("<i4").view(np.uint8))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        write_safetensors(copy, tensors.values(), metadata)
        try:
            return open_fitting_heads(copy, checkpoint)  # what is mapped outlives its name
        except CheckpointError:
            raise refusal from None
