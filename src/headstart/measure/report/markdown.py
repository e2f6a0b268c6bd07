"""A report as Markdown: the same figures as the page, to be read, compared and pasted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headstart.measure.numbers import significant
from headstart.measure.report.document import Report
from headstart.measure.report.figures import CellFigures, SideFigures
from headstart.measure.report.latency import Distribution
from headstart.measure.report.spread import Spread


def facts(report: Report) -> Iterator[tuple[str, object]]:
    """What was measured and on what, as names and values."""
    yield from _flat({**report.subject, **report.conditions})


def spread_text(spread: Spread | None, digits: int) -> str:
    """A median with the lowest and highest; nothing for `None`."""
    if spread is None:
        return ""
    return f"{spread.median:.{digits}f} ({spread.lowest:.{digits}f} to {spread.highest:.{digits}f})"


def percentiles(distribution: Distribution | None) -> str:
    """Three percentiles in milliseconds; nothing for `None`."""
    if distribution is None:
        return ""
    return " / ".join(significant(1e3 * value) for value in (distribution.p50, distribution.p95, distribution.p99))


def render_markdown(report: Report) -> str:
    """All of the report."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {report.subject['model']['name']}: does drafting pay?"
    yield ""
    yield f"**{report.verdict.sentence}** {report.verdict.would_change}"
    yield ""
    if not report.is_complete:
        yield "The run was stopped before its end; these are the turns that it had taken."
        yield ""
    yield from _identity(report)
    for cell in report.cells:
        yield f"## With {cell.key}"
        yield ""
        yield from _speeds(cell)
        yield from _categories(cell)
        yield from _latencies(cell)
        yield from _acceptance(cell)
        yield from _costs(cell)
        yield from _server_counts(cell)
    yield from _about(report)


def _identity(report: Report) -> Iterator[str]:
    for name in report.sides[1:]:
        sides = [side for cell in report.cells if (side := cell.side(name)) is not None]
        compared = sum(side.num_compared for side in sides)
        different = [text for side in sides for text in side.different]
        if not compared:
            continue
        if different:
            shown = ", ".join(different[:5]) + (", ..." if len(different) > 5 else "")
            yield f"- {name}: {len(different)} of {compared} texts are **not** the plain ones: {shown}"
        else:
            yield f"- {name}: {compared} of {compared} texts equal the plain ones, by hash"
    yield ""


def _server_counts(cell: CellFigures) -> Iterator[str]:
    counted = [side for side in cell.sides if side.server_tokens]
    for side in counted:
        yield (
            f"- {side.label}: {side.server_tokens} tokens by the server's own counters, {side.usage_tokens} by the "
            "usage of its answers"
        )
    if counted:
        yield ""


def _speeds(cell: CellFigures) -> Iterator[str]:
    rows = []
    for side in cell.sides:
        prediction = side.prediction
        rows.append(
            (
                side.label,
                spread_text(side.tokens_per_s, 1),
                spread_text(side.speedup, 2),
                "" if prediction is None else f"{prediction.predicted:.2f}",
                "" if prediction is None else f"{prediction.measured:.2f}",
                "" if prediction is None else f"{prediction.mean_acceptance_length:.2f}",
                "" if prediction is None else f"{prediction.check_cost:.2f}",
                "" if prediction is None else f"{prediction.draft_cost:.2f}",
            )
        )
    yield from _table(
        ("side", "tokens/s", "speed-up", "decoding: predicted", "measured", "tokens a round τ", "v", "c"), rows
    )


def _categories(cell: CellFigures) -> Iterator[str]:
    sides = [side for side in cell.sides if side.drafts and side.speedup_by_category]
    categories = list(dict.fromkeys(category for side in sides for category in side.speedup_by_category))
    if len(categories) < 2:
        return
    rows = [
        (category, *(spread_text(side.speedup_by_category.get(category), 2) for side in sides))
        for category in categories
    ]
    yield from _table(("speed-up for", *(side.side for side in sides)), rows)


def _latencies(cell: CellFigures) -> Iterator[str]:
    rows = []
    for side in cell.sides:
        latency = side.latency
        rows.append(
            (
                side.label,
                *(
                    percentiles(each)
                    for each in (latency.first_token_s, latency.token_s, latency.pause_s, latency.request_s)
                ),
            )
        )
    yield from _table(
        ("p50 / p95 / p99, ms", "to the first token", "a token", "between arrivals of text", "whole request"), rows
    )


def _acceptance(cell: CellFigures) -> Iterator[str]:
    sides = [side for side in cell.sides if side.acceptance is not None and side.acceptance.drafted]
    depth = max((len(side.acceptance.conditional) for side in sides if side.acceptance), default=0)
    if not depth:
        return
    rows = []
    for side in sides:
        assert side.acceptance is not None
        rows.append((f"{side.side}, if reached", *_padded(side.acceptance.conditional, depth)))
        rows.append((f"{side.side}, kept so far", *_padded(side.acceptance.survival, depth)))
    yield from _table(("accepted at depth", *(str(number) for number in range(1, depth + 1))), rows)
    for side in sides:
        yield _drafts(side)
    yield ""


def _drafts(side: SideFigures) -> str:
    assert side.acceptance is not None
    acceptance = side.acceptance
    whose = ", ".join(f"{number} by {name}" for name, number in acceptance.accepted_by_drafter.items())
    return (
        f"- {side.side}: {acceptance.accepted} of {acceptance.drafted} guesses kept ({acceptance.acceptance_rate:.2f}) "
        f"in {acceptance.rounds} rounds{f'; {whose}' if whose else ''}"
    )


def _costs(cell: CellFigures) -> Iterator[str]:
    if not cell.cost_ms:
        return
    yield from _table(
        ("rows of a pass R", *(str(rows) for rows in cell.cost_ms)),
        [
            ("ms", *(f"{value:.2f}" for value in cell.cost_ms.values())),
            ("v(R)", *(f"{value:.2f}" for value in cell.relative_cost.values())),
        ],
    )


def _about(report: Report) -> Iterator[str]:
    yield "## How it was measured"
    yield ""
    for name, value in facts(report):
        yield f"- {name}: {value}"


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield f"{prefix}{name}", "; ".join(str(item.get("key", item)) for item in value)
        elif isinstance(value, list):
            yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        elif value is not None:
            yield f"{prefix}{name}", value


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _row(row)
    yield ""


def _row(cells: Sequence[str]) -> str:
    # a bar or a line's end in a name would be the table's own
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _padded(values: Sequence[float], length: int) -> list[str]:
    return [f"{value:.2f}" for value in values] + [""] * (length - len(values))
