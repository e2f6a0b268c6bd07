"""The parts of an engine for a model file.

Imported only when a file is to be loaded: nothing else in this package needs
file formats or the native module.
"""

from __future__ import annotations

from pathlib import Path

from headstart.checkpoint import open_checkpoint
from headstart.decoding.drafter import Drafter
from headstart.decoding.lookup import LookupDrafter
from headstart.engine.text import Tokenizer
from headstart.errors import ConfigError
from headstart.runtime.native import load_trunk
from headstart.runtime.protocol import Trunk

DRAFT_KINDS = ("auto", "lookup", "off")


def load_parts(source: str | Path, draft: str, threads: int | None) -> tuple[Trunk, Tokenizer, Drafter | None]:
    """Trunk, tokenizer and drafter for a model file. Arguments and errors are those of `Engine.load`."""
    drafter = _make_drafter(draft)
    checkpoint = open_checkpoint(source)
    return load_trunk(checkpoint, threads=threads), checkpoint.tokenizer(), drafter


def _make_drafter(draft: str) -> Drafter | None:
    if draft not in DRAFT_KINDS:
        raise ConfigError(f"draft = {draft!r}: it must be one of {', '.join(DRAFT_KINDS)}.")
    return None if draft == "off" else LookupDrafter()
