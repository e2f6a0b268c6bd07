"""The three ways of decoding that are compared: plainly, with heads alone, and as the engine does by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from head_figures.workload import Prompt
from headstart import Engine, SamplingParams
from headstart.decoding.lookup import LookupDrafter
from headstart.engine.loading import EngineParts, load_parts
from headstart.records import Completion

MAX_NODES = 15  # with the root, 16 rows a round
BATCH = 16

_WARM_UP = "The capital of France is"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Engines:
    """Engines over one model. The plain one has a trunk of its own, that keeps nothing for heads.

    Attributes:
        plain: decodes plainly.
        parts: of the two that draft. They share a trunk, so making one ends the use of the other.
    """

    plain: Engine
    parts: EngineParts

    @staticmethod
    def load(model: Path, heads: Path | None, threads: int | None, weights: str = "stored") -> Engines:
        """Load the model twice, once with heads.

        Args:
            model: what is loaded.
            heads: their file; by default those that belong to the model.
            threads: of the CPU; by default as many as there are.
            weights: of the model, as `load_parts` takes it.

        Raises:
            HeadstartError: the model or its heads cannot be loaded, or there are no heads.
        """
        draft = "heads" if heads is None else f"heads:{heads}"
        parts = load_parts(model, draft=draft, threads=threads, weights=weights)
        plain = load_parts(model, draft="none", threads=threads, weights=weights)
        return Engines(plain=_warmed(plain.make_engine(**_settings(BATCH))), parts=parts)

    def with_heads(self) -> Engine:
        """A new engine that has heads guess in every round, as much as rows allow; one text at a time.

        Several at a time would take a little from each other: what heads read of prompts in one go is bounded over
        all texts, and a text that is not read yet gets no guesses.
        """
        return self.parts.make_engine(policy="always", max_nodes=MAX_NODES, **_settings(1))

    def automatic(self) -> Engine:
        """A new engine with the drafters of `--draft auto`, that drafts where it pays."""
        drafters = (LookupDrafter(), *self.parts.make_drafters())
        return _warmed(Engine(self.parts.trunk, self.parts.tokenizer, drafter=drafters, **_settings(BATCH)))


def complete(
    engine: Engine, prompts: Sequence[Prompt], params: Sequence[SamplingParams]
) -> Iterator[tuple[int, Completion]]:
    """Write on from all prompts, as many at once as the engine takes; each answer with its prompt's index, as it ends.

    Args:
        engine: idle.
        prompts: to be answered.
        params: one for each.
    """
    indices = {
        engine.submit(prompt.token_ids, own): index
        for index, (prompt, own) in enumerate(zip(prompts, params, strict=True))
    }
    try:
        while indices:
            for event in engine.step():
                if event.finish_reason is not None:
                    yield indices.pop(event.sequence_id), engine.completion(event.sequence_id)
    finally:
        engine.close()


def _settings(max_batch: int) -> dict[str, Any]:
    # a prompt that comes again is to be read again
    return {"max_batch": max_batch, "share_prefixes": False}


def _warmed(engine: Engine) -> Engine:
    engine.generate(_WARM_UP, SamplingParams(max_tokens=8, ignore_eos=True))
    return engine
