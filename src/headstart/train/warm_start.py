"""Heads that a training goes on from: those of a file, in the place of the least-squares start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint
from headstart.checkpoint.heads_file import open_heads
from headstart.checkpoint.trunk_identity import vocabulary_digest
from headstart.errors import CheckpointError, ConfigError
from headstart.runtime.open_heads import described_heads


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """What is taken from a heads file.

    Attributes:
        weights: float32, by the names of the heads' programs.
        vocabulary: int64 [V], the trunk's ids of the tokens that can be guessed, or `None` for all. A row of the heads
            means what the file says it means, so the vocabulary is never chosen anew.
        digest: of the file.
    """

    weights: Mapping[str, NDArray[np.float32]]
    vocabulary: NDArray[np.int64] | None
    digest: str


def read_warm_start(path: Path, wanted: HeadsConfig, checkpoint: Checkpoint) -> WarmStart:
    """Read heads to go on from.

    They may have been made for another trunk of the same shape and vocabulary, such as the model before it was
    fine-tuned, and one module that is unrolled may have been unrolled to another depth.

    Args:
        path: the heads file.
        wanted: the heads that are to be trained.
        checkpoint: the trunk that they are to be trained for.

    Raises:
        CheckpointError: the file is damaged, or its heads are for another vocabulary or shape.
        ConfigError: its heads are of another making than those wanted.
    """
    file = open_heads(path)
    trained_for, tokens = file.header.trunk, vocabulary_digest(checkpoint.tokenizer())
    if trained_for.vocabulary_digest != tokens:
        raise CheckpointError(
            f"{path}: the heads were trained for {trained_for.name}, whose tokens are others than this model's "
            f"(digests {trained_for.vocabulary_digest} and {tokens}). Give heads of a model with this tokenizer, or "
            "none."
        )
    found = described_heads(file, read_config(checkpoint)[1])
    _require_same(path, found, wanted)
    weights = {name: file.tensor(name).dequantize() for name in file.shapes}
    if file.vocabulary is None:
        return WarmStart(weights, None, file.digest())
    # a file may name ids in any order; training finds them by search
    order = np.argsort(file.vocabulary)
    sorted_rows = {name: weight[order] for name, weight in weights.items() if name.endswith("unembedding")}
    return WarmStart(weights | sorted_rows, file.vocabulary[order].astype(np.int64), file.digest())


def _require_same(path: Path, found: HeadsConfig, wanted: HeadsConfig) -> None:
    if found.recurrent and found.num_modules == 1:
        found = replace(found, depth=wanted.depth)
    have, want = asdict(found), asdict(wanted)
    differing = [f"{name} = {have[name]} (asked for: {want[name]})" for name in have if have[name] != want[name]]
    if differing:
        raise ConfigError(
            f"{path}: these heads cannot be gone on with: {'; '.join(differing)}. Ask for heads like these, or leave "
            "the file out."
        )
