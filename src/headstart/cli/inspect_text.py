"""An inspection's report for people: the verdict first, then what it rests on."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from headstart.cli.terminal import printable, wants_colour
from headstart.measure.inspect import Report
from headstart.measure.inspect.engines import AS_OF
from headstart.measure.inspect.judgement import EngineVerdict
from headstart.measure.numbers import significant

_WIDTH = 100
_LABEL_WIDTH = 14
_COLOURS = {"yes": "32", "later": "33", "no": "2", "problem": "31", "warning": "33", "note": "2"}
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_BYTE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def print_report(report: Report) -> None:
    """Print a report to stdout; in colour on a terminal."""
    coloured = wants_colour(sys.stdout)
    for line, colour in _lines(report):
        # names come from files, which may hold anything
        text = printable(line)
        print(f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if coloured and colour else text)


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    for line in textwrap.wrap(report.verdict, _WIDTH):
        yield line, ""
    yield "", ""
    for label, text in _facts(report):
        yield from _labelled(label, text)
    if report.findings:
        yield "", ""
        for finding in report.findings:
            yield from _labelled(finding.level, finding.text, finding.level)
    yield "", ""
    yield f"Engines (as of {AS_OF})", ""
    for engine in report.engines:
        yield from _engine(engine)
    if report.drops:
        yield "", ""
        yield "What drops the heads", ""
        for drop in report.drops:
            yield from _labelled("  -", drop, width=4)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    sizes, heads = report.sizes, report.native_heads
    yield "model", report.model
    known = f"{report.family} ({report.family_title})" if report.family_title else report.family or "unknown"
    yield "family", known + ("" if report.role == "model" else f", {report.role}")
    if sizes.total_parameters is not None:
        parts = [f"{_count(sizes.total_parameters)} parameters"]
        if sizes.heads_parameters and sizes.trunk_parameters:
            parts.append(f"trunk {_count(sizes.trunk_parameters)}, heads {_count(sizes.heads_parameters)}")
        if sizes.copied_parameters:
            parts.append(f"copies of the trunk's {_count(sizes.copied_parameters)}")
        yield "size", "; ".join(parts)
    elif sizes.total_bytes is not None:
        yield "size", _bytes(sizes.total_bytes)
    yield "format", _format(report)
    promised = "unknown" if heads.promised is None else str(heads.promised)
    yield "promised", promised + (f" (by {heads.promised_by})" if heads.promised_by else "")
    yield "present", "not to be seen" if heads.present is None else str(heads.present)
    if heads.kind is not None:
        depths = "" if not heads.depths else f", {heads.depths} {'guess' if heads.depths == 1 else 'guesses'} ahead"
        yield "kind", heads.kind + (f", named as {heads.layout}" if heads.layout else "") + depths
    if sizes.heads_bytes and heads.kind is not None:
        yield "memory", _memory(sizes.heads_bytes, sizes.cache_bytes_per_token)
    if report.own_heads is not None and report.role == "model":
        own = report.own_heads
        yield "own heads", f"{own.kind}, {own.depths} guesses ahead: {own.path}"
        yield "", _memory(own.num_bytes, own.cache_bytes_per_token)
        for note in own.notes:
            yield "", note


def _memory(heads_bytes: int, cache_bytes_per_token: int | None) -> str:
    return f"heads {_bytes(heads_bytes)}; their cache {_bytes(cache_bytes_per_token or 0)} a token"


def _format(report: Report) -> str:
    parts = [report.format]
    for what, formats in (("trunk", report.sizes.trunk_formats), ("heads", report.sizes.heads_formats)):
        if formats:
            parts.append(f"{what} {_shares(formats)}")
    if report.quantisation is not None:
        bits = report.quantisation["bits"]
        method = report.quantisation["method"] or "unnamed"
        parts.append(f"quantised by {method}" + (f", {bits} bits" if bits else ""))
    return "; ".join(parts)


def _shares(formats: Mapping[str, int]) -> str:
    total = sum(formats.values()) or 1
    shares = [(kind, round(100 * size / total)) for kind, size in formats.items()]
    return ", ".join(kind if len(shares) == 1 else f"{kind} {share} %" for kind, share in shares if share or total == 1)


def _engine(engine: EngineVerdict) -> Iterator[tuple[str, str]]:
    mark = "yes" if engine.supported else "later" if engine.after_conversion else "no"
    since = f"since {engine.since}. " if engine.since and mark != "no" else ""
    label = f"  {engine.title}"
    yield from _labelled(label, f"{mark}: {since}{engine.why}".rstrip(": "), mark, width=18)
    if engine.flags:
        # a command is not broken: it is there to be copied
        yield " " * 18 + shlex.join(engine.flags), ""


def _labelled(label: str, text: str, colour: str = "", *, width: int = _LABEL_WIDTH) -> Iterable[tuple[str, str]]:
    lines = textwrap.wrap(text, _WIDTH - width, break_long_words=False, break_on_hyphens=False) or [""]
    yield f"{label:{width}}{lines[0]}".rstrip(), colour
    for line in lines[1:]:
        yield " " * width + line, colour


def _count(number: int) -> str:
    for size, unit in _UNITS:
        if number >= size:
            return f"{significant(number / size)} {unit}"
    return str(number)


def _bytes(number: int) -> str:
    for size, unit in _BYTE_UNITS:
        if number >= size:
            return f"{significant(number / size)} {unit}"
    return f"{number} bytes"
