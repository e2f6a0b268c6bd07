"""From the name of a model and flags to engines."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from headstart.checkpoint import packaged_model
from headstart.cli.flags import EngineFlags
from headstart.cli.progress import progress_bar
from headstart.engine import Engine
from headstart.engine.loading import EngineParts, load_parts

PACKAGED_NAME = "smollm2"

# The verbs write one text at a time.
MAX_BATCH = 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OpenedModel:
    """A model in memory.

    Attributes:
        name: as the user gave it.
        parts: what engines are made of.
        flags: what was asked for.
        load_s: seconds that loading took.
    """

    name: str
    parts: EngineParts
    flags: EngineFlags
    load_s: float

    def make_engine(self, *, drafts: bool = True) -> Engine:
        """An engine for one sequence at a time. It takes the caches from an engine made before, and has learnt nothing.

        Args:
            drafts: whether it may guess; otherwise it decodes plainly, whatever the flags say.

        Raises:
            ConfigError: the flags' context is out of range.
            CapacityError: the cache does not fit into memory.
        """
        return self.parts.make_engine(drafts=drafts, max_batch=MAX_BATCH, cache_tokens=self.flags.context)


def open_model(name: str, flags: EngineFlags) -> OpenedModel:
    """Load a model.

    Args:
        name: a file, a folder, a name on the hub, or "smollm2" for the packaged one.
        flags: how.

    Raises:
        HeadstartError: as `load_parts`, and if the packaged model is not installed.
    """
    started = time.perf_counter()
    with progress_bar(f"Loading {Path(name).name}") as show:
        parts = load_parts(
            model_source(name),
            draft=draft_source(flags.draft),
            threads=flags.threads,
            weights=flags.weights,
            progress=show,
        )
    for note in parts.heads.notes if parts.heads is not None else ():
        print(f"note: {note}", file=sys.stderr, flush=True)
    return OpenedModel(name=name, parts=parts, flags=flags, load_s=time.perf_counter() - started)


def draft_source(draft: str) -> str:
    """What `load_parts` takes for a drafter that the user gave."""
    kind, separator, name = draft.partition(":")
    return f"{kind}{separator}{model_source(name)}"


def model_source(name: str) -> str:
    """What `open_checkpoint` takes for a name that the user gave."""
    return str(packaged_model()) if name == PACKAGED_NAME else name
