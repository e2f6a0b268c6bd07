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
from headstart.engine.heads_drafter import HeadsDraftConfig, HeadsDrafter
from headstart.engine.model_drafter import ModelDraftConfig, ModelDrafter
from headstart.engine.vocabulary import check_same_vocabulary
from headstart.errors import ConfigError
from headstart.runtime.native import NativeTrunk, WeightFormat, load_trunk
from headstart.runtime.native_heads import NativeHeads, load_heads
from headstart.runtime.open_heads import FittedHeads, find_heads, heads_place, open_fitting_heads

BEYOND_TRAINING = 2
"""Depths that an unrolled module is asked for, as a multiple of those it was trained for. Each is a pass of the heads,
and what lies deeper than that brings 1.5 % of the tokens of a round."""

_MODEL, _HEADS = "model:", "heads:"

DRAFT_KINDS = ("auto", "lookup", "heads", f"{_HEADS}FILE", f"{_MODEL}PATH", "none")
"""Who guesses.

- lookup: what followed the same words before;
- heads: those that lie beside the model or ship with this package, or those of a file;
- model: a smaller one;
- none: no one, text is decoded plainly;
- auto: lookup, and heads if there are any.
"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EngineParts:
    """What an engine for a model file is made of.

    Attributes:
        checkpoint: the opened file or folder.
        trunk: its model, loaded.
        tokenizer: its vocabulary.
        drafters: who guesses, cheap ones first; none for plain decoding.
        heads: those among the drafters, if any.
    """

    checkpoint: Checkpoint
    trunk: NativeTrunk
    tokenizer: Tokenizer
    drafters: tuple[Drafter, ...]
    heads: FittedHeads | None = None


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
        CheckpointError: a file is missing or damaged, or heads do not fit the model.
        UnsupportedError: this build cannot run a model, or the drafting one has another vocabulary.
        CapacityError: a drafter does not fit into memory.
        ConfigError: an unknown `draft` or `weights`.
    """
    _check_kind(draft)  # first: a wrong name should not wait for the weights
    checkpoint = open_checkpoint(source)
    tokenizer = checkpoint.tokenizer()
    heads = _open_heads(draft, checkpoint)
    draft_checkpoint = None
    if draft.startswith(_MODEL):
        draft_checkpoint = open_checkpoint(draft.removeprefix(_MODEL))
        check_same_vocabulary(tokenizer, draft_checkpoint.tokenizer())
    # the format's name is checked there
    format_name = cast(WeightFormat, weights)
    taps = () if heads is None else heads.config.taps
    trunk = load_trunk(checkpoint, threads=threads, weights=format_name, taps=taps, progress=progress)
    drafters: list[Drafter] = []
    if draft in ("auto", "lookup"):
        drafters.append(LookupDrafter())
    if heads is not None:
        drafters.append(
            HeadsDrafter(
                _load_heads(trunk, checkpoint, heads),
                trunk.make_chooser,
                end_ids=tokenizer.end_ids,
                config=HeadsDraftConfig(max_depth=BEYOND_TRAINING * heads.config.depth),
            )
        )
    if draft_checkpoint is not None:
        drafters.append(
            ModelDrafter(
                load_trunk(draft_checkpoint, threads=threads),
                vocab_size=trunk.vocab_size,
                end_ids=tokenizer.end_ids,
                config=ModelDraftConfig(max_batch=max_batch, cache_tokens=cache_tokens),
            )
        )
    return EngineParts(checkpoint=checkpoint, trunk=trunk, tokenizer=tokenizer, drafters=tuple(drafters), heads=heads)


def _check_kind(draft: str) -> None:
    if draft == _MODEL:
        raise ConfigError("draft = 'model:': it names no model. Put a file, a folder or a hub name after the colon.")
    if draft == _HEADS:
        raise ConfigError("draft = 'heads:': it names no file. Put one after the colon, or leave the colon out.")
    if not draft.startswith((_MODEL, _HEADS)) and draft not in DRAFT_KINDS:
        raise ConfigError(f"draft = {draft!r}: it must be one of {', '.join(DRAFT_KINDS)}.")


def _open_heads(draft: str, checkpoint: Checkpoint) -> FittedHeads | None:
    if draft.startswith(_HEADS):
        return open_fitting_heads(Path(draft.removeprefix(_HEADS)), checkpoint)
    if draft not in ("auto", "heads"):
        return None
    found = find_heads(checkpoint)
    if found is not None or draft == "auto":
        return found
    raise ConfigError(
        f"draft = 'heads': there are none for this model: neither {heads_place(checkpoint)}, nor any among those that "
        "ship with this package that fit. Name a file (heads:FILE), train some (headstart graft), or use draft = "
        "'auto', which does without."
    )


def _load_heads(trunk: NativeTrunk, checkpoint: Checkpoint, heads: FittedHeads) -> NativeHeads:
    weights = {name: heads.file.tensor(name) for name in heads.file.shapes}
    return load_heads(trunk, checkpoint, heads.config, weights, heads.file.vocabulary)
