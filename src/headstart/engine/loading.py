"""The parts of an engine for a model file.

Imported only when a file is to be loaded: nothing else in this package needs
file formats or the native module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from headstart.checkpoint import Checkpoint, Tokenizer, open_checkpoint
from headstart.decoding.drafter import Drafter
from headstart.decoding.lookup import LookupDrafter
from headstart.errors import ConfigError, UnsupportedError
from headstart.runtime.native import NativeTrunk, WeightFormat, load_trunk

DRAFT_KINDS = ("auto", "lookup", "none", "model:PATH")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EngineParts:
    """What an engine for a model file is made of.

    Attributes:
        checkpoint: the opened file or folder.
        trunk: its model, loaded.
        tokenizer: its vocabulary.
        drafter: who guesses; `None` for plain decoding.
    """

    checkpoint: Checkpoint
    trunk: NativeTrunk
    tokenizer: Tokenizer
    drafter: Drafter | None


def load_parts(
    source: str | Path,
    *,
    draft: str = "auto",
    threads: int | None = None,
    weights: str = "stored",
    progress: Callable[[float], None] | None = None,
) -> EngineParts:
    """Load what an engine needs.

    Args:
        source: what `open_checkpoint` takes.
        draft: one of `DRAFT_KINDS`.
        threads: CPU threads; all physical cores by default.
        weights: "stored" as in the file, or one of `headstart.runtime.native.WeightFormat`.
        progress: called with the share of the weights that is loaded, 0 to 1.

    Raises:
        CheckpointError: the file is missing or damaged.
        UnsupportedError: this build cannot run the model or draft so.
        ConfigError: an unknown `draft` or `weights`.
    """
    drafter = make_drafter(draft)  # first: a wrong name should not wait for the weights
    checkpoint = open_checkpoint(source)
    # the format's name is checked there
    trunk = load_trunk(checkpoint, threads=threads, weights=cast(WeightFormat, weights), progress=progress)
    return EngineParts(checkpoint=checkpoint, trunk=trunk, tokenizer=checkpoint.tokenizer(), drafter=drafter)


def make_drafter(draft: str) -> Drafter | None:
    """The drafter of a name; `None` for "none".

    Raises:
        ConfigError: the name is not one of `DRAFT_KINDS`.
        UnsupportedError: a kind that this build does not have.
    """
    if draft.startswith("model:"):
        raise UnsupportedError(
            f"draft = {draft!r}: this build cannot draft with a second model yet. Use 'lookup' or 'none'."
        )
    if draft not in DRAFT_KINDS:
        raise ConfigError(f"draft = {draft!r}: it must be one of {', '.join(DRAFT_KINDS)}.")
    return None if draft == "none" else LookupDrafter()
