"""Which engines can draft with a checkpoint's heads: it must have them, and the engine must use them, both."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headstart.measure.inspect.case import Case
from headstart.measure.inspect.engines import ENGINES, Engine
from headstart.measure.inspect.names import canonical

# EAGLE's drafters say nothing of how far; what most engines' examples ask of them
_USUAL_TOKENS = 3

_DRAFTER_KINDS = ("eagle", "eagle3", "medusa", "assistant", "dspark")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineVerdict:
    """What an engine makes of these heads.

    Attributes:
        name: of the engine.
        title: for people.
        supported: it drafts with these heads from these very files.
        implements: it drafts with heads of this family, had it such files.
        after_conversion: it would with files converted to its format.
        since: the release or change that brought it; `None` if it does not, or that is not established.
        flags: what to add to its command line.
        why: what stands in the way, or what it does not do; may be empty.
    """

    name: str
    title: str
    supported: bool
    implements: bool
    after_conversion: bool
    since: str | None
    flags: tuple[str, ...]
    why: str


def judge(case: Case, *, is_sound: bool) -> tuple[EngineVerdict, ...]:
    """What every other engine makes of a checkpoint's heads.

    Args:
        case: the checkpoint.
        is_sound: no problem was found with its heads.
    """
    return tuple(_judge(engine, case, is_sound) for engine in ENGINES)


def _judge(engine: Engine, case: Case, is_sound: bool) -> EngineVerdict:
    family = case.family
    switches = _switches(engine, case)
    implements = family is not None and family.name in engine.since and switches is not None
    obstacle = _obstacle(engine, case, implements, is_sound)
    reads = case.description.format in engine.reads
    converts = not reads and bool(engine.conversion) and case.description.format == "safetensors"
    supported = obstacle is None and reads
    after_conversion = obstacle is None and converts
    if obstacle is not None:
        why = obstacle
    elif supported:
        why = engine.limit
    elif after_conversion:
        why = f"It reads files of its own: convert these ({engine.conversion})."
    else:
        why = f"It does not draft from {case.description.format} files; it takes {' or '.join(engine.reads) or 'IR'}."
    usable = supported or after_conversion
    return EngineVerdict(
        name=engine.name,
        title=engine.title,
        supported=supported,
        implements=implements,
        after_conversion=after_conversion,
        since=(engine.since.get(family.name) or None) if implements and family is not None else None,
        flags=_filled(switches, case) if usable and switches is not None else (),
        why=why,
    )


def _switches(engine: Engine, case: Case) -> tuple[str, ...] | None:
    if case.kind in _DRAFTER_KINDS:
        return engine.drafter_switches.get(case.kind or "")
    return (engine.switches or None) if case.kind == "sequential" else None


def _filled(switches: tuple[str, ...], case: Case) -> tuple[str, ...]:
    tokens = str(case.depths or _USUAL_TOKENS)
    return tuple(text.replace("{tokens}", tokens).replace("{path}", case.description.where) for text in switches)


def _obstacle(engine: Engine, case: Case, implements: bool, is_sound: bool) -> str | None:
    """Why an engine cannot use these heads whatever their files' format; `None` if it can."""
    promised, present = case.promise.count, case.present
    if present == 0 or (present is None and not promised):
        return "There are no heads to use." if not promised else "The heads that the settings promise are not here."
    if not implements:
        family = "" if case.family is None else f", {case.family.title}"
        return f"It is not known to use heads of this family{family}."
    if present is None:
        return "Whether the heads are in the files cannot be seen."
    if not is_sound:
        return "The heads in these files have a problem, which stands above."
    if engine.name == "sglang" and case.kind == "eagle3" and _has_numbered_layers(case):
        return "It calls the first layer midlayer and drops layers.0 without a word: rename it for this engine."
    if engine.name == "vllm" and case.family is not None and case.family.name == "nemotron_h" and present > 1:
        return f"It runs one module of this family; here are {present}."
    return None


def _has_numbered_layers(case: Case) -> bool:
    return any(re.match(r"(?:model\.)?layers\.0\.", canonical(name)) for name in case.description.tensors or {})
