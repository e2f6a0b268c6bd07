"""This program's own heads for a checkpoint: in the file itself, beside it, or among those that ship."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from headstart.architectures.heads import HeadsConfig
from headstart.checkpoint import open_checkpoint
from headstart.checkpoint.heads_file import HeadsFile, is_heads_file, open_heads
from headstart.checkpoint.safetensors import declared_safetensors
from headstart.errors import HeadstartError
from headstart.measure.inspect.case import Case
from headstart.measure.inspect.judgement import EngineVerdict
from headstart.measure.inspect.sizes import CACHE_VALUE_BYTES
from headstart.runtime.open_heads import find_heads

_CACHED = (".attention.k", ".attention.v")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnHeads:
    """A heads file of this program.

    Attributes:
        path: the file.
        kind: of the heads.
        depths: guesses ahead that they were trained for.
        trained_for: what their trunk is called.
        parameters: of the heads; what they borrow from their trunk does not count.
        num_bytes: of their weights.
        cache_bytes_per_token: that they keep for a token, at two bytes a value.
        notes: sentences for the user.
    """

    path: str
    kind: str
    depths: int
    trained_for: str
    parameters: int
    num_bytes: int
    cache_bytes_per_token: int
    notes: tuple[str, ...] = ()


def open_own_heads(path: Path) -> OwnHeads | None:
    """A file, if it is one of this program's heads files.

    Raises:
        CheckpointError: it is one, but damaged.
    """
    if not (path.is_file() and path.suffix == ".safetensors" and is_heads_file(path)):
        return None
    return _own(open_heads(path))


def judge_own(case: Case) -> tuple[EngineVerdict, OwnHeads | None]:
    """What this program's engine makes of a checkpoint: whether it runs it, and whether there are heads that fit.

    Of the weights it reads the norms, by which heads know their trunk.
    """
    if case.description.path is None:
        return _verdict(False, "It drafts with heads in files of its own; fetch the model to see if some fit."), None
    if case.is_drafter:
        return _verdict(False, "It drafts with heads in files of its own, not with other programs' drafters."), None
    try:
        fitted = find_heads(open_checkpoint(case.description.path))
    except HeadstartError as error:
        return _verdict(False, str(error)), None
    if fitted is None:
        return _verdict(False, "No heads file lies beside the model, and none that ships fits: headstart graft."), None
    own = _own(fitted.file, fitted.notes)
    return _verdict(True, "", ("--draft", f"heads:{own.path}")), own


def own_verdict(heads: OwnHeads) -> EngineVerdict:
    """The same of a heads file itself."""
    return _verdict(True, f"For the model {heads.trained_for}.", ("--draft", f"heads:{heads.path}"))


def _own(file: HeadsFile, notes: tuple[str, ...] = ()) -> OwnHeads:
    config = HeadsConfig.from_json(file.header.heads)
    return OwnHeads(
        path=str(file.path),
        kind=config.kind,
        depths=config.depth,
        trained_for=file.header.trunk.name,
        parameters=sum(math.prod(shape) for shape in file.shapes.values()),
        num_bytes=sum(tensor.num_bytes for tensor in declared_safetensors(file.path)),
        cache_bytes_per_token=CACHE_VALUE_BYTES
        * sum(shape[0] for name, shape in file.shapes.items() if name.endswith(_CACHED)),
        notes=notes,
    )


def _verdict(supported: bool, why: str, flags: tuple[str, ...] = ()) -> EngineVerdict:
    return EngineVerdict(
        name="headstart",
        title="Headstart",
        supported=supported,
        implements=supported,
        after_conversion=False,
        since=None,
        flags=flags,
        why=why,
    )
