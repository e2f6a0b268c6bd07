"""The parts of engines for a model file.

Imported only when a file is to be loaded: nothing else in this package needs
file formats or the native module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from headstart.checkpoint import Checkpoint, Tokenizer, open_checkpoint
from headstart.decoding.drafter import Drafter
from headstart.decoding.lookup import LookupDrafter
from headstart.engine.engine import Engine
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

# settings of an engine that a drafting model's cache follows
_SIZES = ("max_batch", "cache_tokens", "share_prefixes")

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
    """What engines for a model file are made of.

    Attributes:
        checkpoint: the opened file or folder.
        trunk: its model, loaded. It serves one engine at a time.
        tokenizer: its vocabulary.
        looks_up: whether lookup guesses.
        heads: that guess, if any do; `loaded_heads` the same in memory.
        draft_checkpoint: of a model that guesses, if one does; `draft_trunk` the same in memory.
    """

    checkpoint: Checkpoint
    trunk: NativeTrunk
    tokenizer: Tokenizer
    looks_up: bool = False
    heads: FittedHeads | None = None
    loaded_heads: NativeHeads | None = None
    draft_checkpoint: Checkpoint | None = None
    draft_trunk: NativeTrunk | None = None

    def make_engine(self, *, drafts: bool = True, **settings: Any) -> Engine:
        """An engine whose drafters have read and learnt nothing. It takes the caches from an engine made before.

        Args:
            drafts: whether anyone guesses.
            **settings: those of `Engine`.

        Raises:
            ConfigError: a setting that cannot hold.
            CapacityError: a cache does not fit into memory.
        """
        drafters = self.make_drafters(**settings) if drafts else ()
        return Engine(self.trunk, self.tokenizer, drafter=drafters or None, **settings)

    def make_drafters(self, **settings: Any) -> tuple[Drafter, ...]:
        """New drafters, cheap ones first; none for plain decoding.

        Args:
            **settings: of the engine to come. A drafting model's cache is made for as much as `max_batch` and
                `cache_tokens` say, and keeps prompts as `share_prefixes` does.
        """
        end_ids = self.tokenizer.end_ids
        drafters: list[Drafter] = [LookupDrafter()] if self.looks_up else []
        if self.heads is not None and self.loaded_heads is not None:
            config = HeadsDraftConfig(max_depth=BEYOND_TRAINING * self.heads.config.depth)
            drafters.append(HeadsDrafter(self.loaded_heads, self.trunk.make_chooser, end_ids=end_ids, config=config))
        if self.draft_trunk is not None:
            sizes = {name: settings[name] for name in _SIZES if name in settings}
            drafting = ModelDraftConfig(**sizes)
            drafters.append(
                ModelDrafter(self.draft_trunk, vocab_size=self.trunk.vocab_size, end_ids=end_ids, config=drafting)
            )
        return tuple(drafters)


def load_parts(
    source: str | Path,
    *,
    draft: str = "auto",
    threads: int | None = None,
    weights: str = "stored",
    progress: Callable[[float], None] | None = None,
) -> EngineParts:
    """Load what engines need.

    Args:
        source: what `open_checkpoint` takes.
        draft: one of `DRAFT_KINDS`. A drafting model runs with its stored weights.
        threads: CPU threads; by default as many as the process may use at once.
        weights: "stored" as in the file, or one of `headstart.runtime.native.WeightFormat`.
        progress: called with the share of the weights that is loaded, 0 to 1.

    Raises:
        CheckpointError: a file is missing or damaged, or heads do not fit the model.
        UnsupportedError: this build cannot run a model, or the drafting one has another vocabulary.
        CapacityError: weights do not fit into memory.
        ConfigError: an unknown `draft` or `weights`.
    """
    _check_kind(draft)  # first: a wrong name should not wait for the weights
    checkpoint = open_checkpoint(source)
    tokenizer = checkpoint.tokenizer()
    heads = _open_heads(draft, checkpoint)
    draft_checkpoint = _open_draft_model(draft, tokenizer)
    # the format's name is checked there
    format_name = cast(WeightFormat, weights)
    taps = () if heads is None else heads.config.taps
    trunk = load_trunk(checkpoint, threads=threads, weights=format_name, taps=taps, progress=progress)
    return EngineParts(
        checkpoint=checkpoint,
        trunk=trunk,
        tokenizer=tokenizer,
        looks_up=draft in ("auto", "lookup"),
        heads=heads,
        loaded_heads=None if heads is None else _load_heads(trunk, checkpoint, heads),
        draft_checkpoint=draft_checkpoint,
        draft_trunk=None if draft_checkpoint is None else load_trunk(draft_checkpoint, threads=threads),
    )


def require_drafter(checkpoint: Checkpoint, draft: str) -> None:
    """Refuse a drafter that could not be loaded for a model, before any weights are.

    Args:
        checkpoint: the model's.
        draft: one of `DRAFT_KINDS`.

    Raises:
        HeadstartError: as `load_parts`.
    """
    _check_kind(draft)
    _open_heads(draft, checkpoint)
    _open_draft_model(draft, checkpoint.tokenizer())


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


def _open_draft_model(draft: str, tokenizer: Tokenizer) -> Checkpoint | None:
    if not draft.startswith(_MODEL):
        return None
    checkpoint = open_checkpoint(draft.removeprefix(_MODEL))
    check_same_vocabulary(tokenizer, checkpoint.tokenizer())
    return checkpoint


def _load_heads(trunk: NativeTrunk, checkpoint: Checkpoint, heads: FittedHeads) -> NativeHeads:
    weights = {name: heads.file.tensor(name) for name in heads.file.shapes}
    return load_heads(trunk, checkpoint, heads.config, weights, heads.file.vocabulary)
