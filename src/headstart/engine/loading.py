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
from headstart.engine.model_drafter import ModelDraftConfig, ModelDrafter
from headstart.engine.vocabulary import check_same_vocabulary
from headstart.errors import ConfigError
from headstart.runtime.native import NativeTrunk, WeightFormat, load_trunk

_MODEL = "model:"

DRAFT_KINDS = ("auto", "lookup", "none", f"{_MODEL}PATH")
"""Who guesses: lookup (from the text so far), a smaller model, no one; auto is lookup."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EngineParts:
    """What an engine for a model file is made of.

    Attributes:
        checkpoint: the opened file or folder.
        trunk: its model, loaded.
        tokenizer: its vocabulary.
        drafters: who guesses, cheap ones first; none for plain decoding.
    """

    checkpoint: Checkpoint
    trunk: NativeTrunk
    tokenizer: Tokenizer
    drafters: tuple[Drafter, ...]


def load_parts(
    source: str | Path,
    *,
    draft: str = "auto",
    threads: int | None = None,
    weights: str = "stored",
    max_batch: int = 16,
    cache_tokens: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> EngineParts:
    """Load what an engine needs.

    Args:
        source: what `open_checkpoint` takes.
        draft: one of `DRAFT_KINDS`. A drafting model runs with its stored weights.
        threads: CPU threads; by default as many as the process may use at once.
        weights: "stored" as in the file, or one of `headstart.runtime.native.WeightFormat`.
        max_batch, cache_tokens: of the engine to come; a drafting model's cache is made for as much.
        progress: called with the share of the weights that is loaded, 0 to 1.

    Raises:
        CheckpointError: a file is missing or damaged.
        UnsupportedError: this build cannot run a model, or the drafting one has another vocabulary.
        CapacityError: the drafting model's cache does not fit into memory.
        ConfigError: an unknown `draft` or `weights`.
    """
    _check_kind(draft)  # first: a wrong name should not wait for the weights
    checkpoint = open_checkpoint(source)
    tokenizer = checkpoint.tokenizer()
    draft_checkpoint = None
    if draft.startswith(_MODEL):
        draft_checkpoint = open_checkpoint(draft.removeprefix(_MODEL))
        check_same_vocabulary(tokenizer, draft_checkpoint.tokenizer())
    # the format's name is checked there
    trunk = load_trunk(checkpoint, threads=threads, weights=cast(WeightFormat, weights), progress=progress)
    drafters: list[Drafter] = []
    if draft in ("auto", "lookup"):
        drafters.append(LookupDrafter())
    if draft_checkpoint is not None:
        drafters.append(
            ModelDrafter(
                load_trunk(draft_checkpoint, threads=threads),
                vocab_size=trunk.vocab_size,
                end_ids=tokenizer.end_ids,
                config=ModelDraftConfig(max_batch=max_batch, cache_tokens=cache_tokens),
            )
        )
    return EngineParts(checkpoint=checkpoint, trunk=trunk, tokenizer=tokenizer, drafters=tuple(drafters))


def _check_kind(draft: str) -> None:
    if draft == _MODEL:
        raise ConfigError("draft = 'model:': it names no model. Put a file, a folder or a hub name after the colon.")
    if not draft.startswith(_MODEL) and draft not in DRAFT_KINDS:
        raise ConfigError(f"draft = {draft!r}: it must be one of {', '.join(DRAFT_KINDS)}.")
