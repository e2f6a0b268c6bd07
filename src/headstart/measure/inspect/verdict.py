"""The sentence at the top of a report."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.measure.inspect.case import Case
from headstart.measure.inspect.judgement import EngineVerdict
from headstart.measure.inspect.own_heads import OwnHeads

_GRAFT = "Heads can be grafted onto a model (headstart graft)."


def verdict_of(
    case: Case,
    present: int | None,
    own: OwnHeads | None,
    engines: Sequence[EngineVerdict],
    *,
    is_sound: bool,
    is_heads_file: bool,
) -> str:
    """Whether there are heads, and whether an engine uses them: one is of no use without the other.

    Args:
        case: the checkpoint.
        present: modules that are there.
        own: this program's heads that fit it.
        engines: who can use what.
        is_sound: no problem was found with its heads.
        is_heads_file: whether the checkpoint is a heads file of this program.
    """
    if is_heads_file and own is not None:
        return f"Heads of this program for {own.trained_for}; its engine drafts with them for that model."
    if own is None:
        return _native(case, present, engines, is_sound) + ("" if present else f" {_GRAFT}")
    return f"{_native(case, present, engines, is_sound)} This program has {own.kind} heads for it and drafts with them."


def _native(case: Case, present: int | None, engines: Sequence[EngineVerdict], is_sound: bool) -> str:
    promised = case.promise.count
    if present and not is_sound:
        return f"It has heads ({_counted(present, case.kind)}), but something is wrong that keeps engines from them."
    if present:
        return f"It has heads ({_counted(present, case.kind)}), {_users(engines)}"
    if present is None:
        if promised:
            return (
                f"Its settings promise heads ({_counted(promised, case.kind)}), but whether they are in the files "
                "cannot be seen from here."
            )
        return "Whether it has heads cannot be seen from here."
    if case.heads.modules:
        return "It has heads that are incomplete, and no engine can use them."
    if promised:
        return (
            f"Its settings promise heads ({_counted(promised, case.kind)}), but the files hold none: every engine "
            "decodes plainly or refuses."
        )
    return "It has no heads of its own."


def _users(engines: Sequence[EngineVerdict]) -> str:
    now = [engine.title for engine in engines if engine.supported and engine.name != "headstart"]
    later = [engine.title for engine in engines if engine.after_conversion]
    if now and later:
        return f"and {_listed(now)} can use them when told to, {_listed(later)} after a conversion."
    if now:
        return f"and {_listed(now)} can use them when told to."
    if later:
        return f"and {_listed(later)} can use them after a conversion."
    return "but no known engine uses them from these files: they are so much unused weight."


def _listed(titles: Sequence[str]) -> str:
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"


def _counted(count: int, kind: str | None) -> str:
    return f"{count} {'module' if count == 1 else 'modules'}" + ("" if kind is None else f", {kind}")
