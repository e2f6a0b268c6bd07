"""The report of an inspection: everything side by side, and a sentence that says what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headstart.measure.inspect.case import Case, make_case
from headstart.measure.inspect.describe import Description, describe
from headstart.measure.inspect.drops import drops_of
from headstart.measure.inspect.engines import AS_OF
from headstart.measure.inspect.findings import Finding, find_out
from headstart.measure.inspect.judgement import EngineVerdict, judge
from headstart.measure.inspect.own_heads import OwnHeads, judge_own, open_own_heads, own_verdict
from headstart.measure.inspect.settings import quantisation
from headstart.measure.inspect.sizes import Sizes
from headstart.measure.inspect.verdict import verdict_of

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeHeads:
    """Heads in the checkpoint itself.

    Attributes:
        promised: modules that the settings speak of; `None` if they cannot say.
        promised_by: the setting.
        present: complete modules among the tensors; `None` if these cannot be seen.
        agrees: whether both are the same; `None` if one is unknown.
        kind: sequential, parallel, medusa, eagle, eagle3, assistant or dspark; `None` if there are none.
        layout: the naming scheme.
        depths: guesses ahead that they were made for; `None` if nothing says so.
        modules: each with its number, what it lacks, and its experts.
    """

    promised: int | None
    promised_by: str | None
    present: int | None
    agrees: bool | None
    kind: str | None
    layout: str | None
    depths: int | None
    modules: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Report:
    """What an inspection found.

    Attributes:
        model: as it was given.
        format: of the weights: safetensors, gguf or pickled.
        role: "model", "drafter" (another program's heads alone) or "heads file" (one of this program's).
        family: by name; what the settings call it if it is not known here; `None` if they say nothing.
        family_title: for people.
        quantisation: method and bits, if the settings speak of one.
        sizes: of trunk and heads.
        native_heads: heads in the checkpoint.
        own_heads: this program's heads that fit it.
        engines: who can use them.
        drops: what loses them.
        findings: contradictions, gaps and traps, the gravest first.
        verdict: one or two sentences.
    """

    model: str
    format: str
    role: str
    family: str | None
    family_title: str | None
    quantisation: Mapping[str, Any] | None
    sizes: Sizes
    native_heads: NativeHeads
    own_heads: OwnHeads | None
    engines: tuple[EngineVerdict, ...]
    drops: tuple[str, ...]
    findings: tuple[Finding, ...]
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """As plain data; docs/reference/inspect.md has the fields."""
        data = asdict(self)
        return {"schema_version": SCHEMA_VERSION, "engines_as_of": AS_OF, **data}


def inspect_checkpoint(source: str | Path, *, revision: str | None = None) -> Report:
    """Inspect a checkpoint, without loading weights.

    Args:
        source: as `describe` takes it.
        revision: branch, tag or commit of a hub name.

    Raises:
        CheckpointError: nothing there, or what is there is damaged.
        UnsupportedError: a version of GGUF that this build does not read.
        ConfigError: a revision was given for a local path.
    """
    own = open_own_heads(Path(source)) if str(source) else None
    if own is not None:
        # the settings beside it, if there are any, are its trunk's
        return _of_heads_file(own, make_case(replace(describe(source), settings={})))
    return report_of(describe(source, revision=revision))


def report_of(description: Description) -> Report:
    """The report on a checkpoint whose files have been read."""
    case = make_case(description)
    own_engine, own = judge_own(case)
    findings = find_out(case)
    engines = (own_engine, *judge(case, is_sound=_are_sound(findings)))
    return _report(case, "drafter" if case.is_drafter else "model", _native(case), own, engines, findings)


def _of_heads_file(own: OwnHeads, case: Case) -> Report:
    native = NativeHeads(
        promised=1, promised_by="the file's header", present=1, agrees=True, kind=own.kind, layout="headstart",
        depths=own.depths,
    )  # fmt: skip
    sizes = Sizes(
        total_parameters=own.parameters, trunk_parameters=0, heads_parameters=own.parameters, copied_parameters=0,
        total_bytes=own.num_bytes, heads_bytes=own.num_bytes, copied_bytes=0,
        cache_bytes_per_token=own.cache_bytes_per_token, heads_formats=case.sizes.trunk_formats,
    )  # fmt: skip
    return _report(replace(case, sizes=sizes), "heads file", native, own, (own_verdict(own),), ())


def _report(
    case: Case,
    role: str,
    native: NativeHeads,
    own: OwnHeads | None,
    engines: tuple[EngineVerdict, ...],
    findings: tuple[Finding, ...],
) -> Report:
    is_own = role == "heads file"
    return Report(
        model=case.description.where,
        format=case.description.format,
        role=role,
        family="headstart" if is_own else _family_name(case),
        family_title=None if case.family is None or is_own else case.family.title,
        quantisation=quantisation(case.settings),
        sizes=case.sizes,
        native_heads=native,
        own_heads=own,
        engines=engines,
        drops=() if is_own else drops_of(case),
        findings=findings,
        verdict=verdict_of(case, native.present, own, engines, is_sound=_are_sound(findings), is_heads_file=is_own),
    )


def _are_sound(findings: tuple[Finding, ...]) -> bool:
    return not any(finding.level == "problem" for finding in findings)


def _family_name(case: Case) -> str | None:
    if case.family is not None:
        return case.family.name
    named = case.settings.get("model_type") or case.settings.get("general.architecture")
    return None if named is None else str(named)


def _native(case: Case) -> NativeHeads:
    promised, present = case.promise.count, case.present
    return NativeHeads(
        promised=promised,
        promised_by=case.promise.by,
        present=present,
        agrees=None if promised is None or present is None else promised == present,
        kind=case.kind,
        layout=None if case.heads.layout is None else case.heads.layout.name,
        depths=case.depths,
        modules=tuple(asdict(module) for module in case.heads.modules),
    )
