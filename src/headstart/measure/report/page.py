"""A report as one page of HTML that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from headstart.measure.report.charts import (
    Series,
    acceptance_chart,
    break_even_chart,
    category_chart,
    cost_chart,
    speed_chart,
    waiting_chart,
)
from headstart.measure.report.document import Report, Sample
from headstart.measure.report.figures import CellFigures, side_label
from headstart.measure.report.markdown import facts, percentiles, spread_text
from headstart.measure.report.style import NUM_DEPTHS, stylesheet
from headstart.measure.report.svg import legend_mark


def render_page(report: Report) -> str:
    """The whole document."""
    title = f"{report.subject['model']['name']}: does drafting pay?"
    body = "\n".join(_body(report, title))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{stylesheet()}</style>\n</head>\n"
        f"<body><main>\n{body}\n</main></body>\n</html>\n"
    )


def _body(report: Report, title: str) -> Iterator[str]:
    series = {name: number for number, name in enumerate(report.sides)}
    verdict = report.verdict
    yield f"<h1>{escape(title)}</h1>"
    yield f'<section class="card verdict {verdict.decision}"><p>{escape(verdict.sentence)}</p>'
    yield f"<p>{escape(verdict.would_change)}</p></section>"
    if not report.is_complete:
        yield '<p class="soft">The run was stopped before its end; these are the turns that it had taken.</p>'
    if not report.cells:
        return
    yield _tiles(report)
    yield _legend({side_label(name): number for name, number in series.items()})
    yield from _over_cells(report, series)
    for number, cell in enumerate(report.cells):
        yield from _cell(cell, series, is_open=number == 0)
    yield from _samples(report.samples, verdict.side)
    yield "<h2>All figures</h2>"
    yield _table(report.cells)
    yield "<h2>How it was measured</h2>"
    yield '<div class="card tile"><dl>'
    yield from (f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts(report))
    yield "</dl></div>"


def _tiles(report: Report) -> str:
    cell = report.cells[0]
    chosen = report.verdict.side or report.sides[-1]
    side = cell.side(chosen)
    tiles: list[tuple[str, str]] = []
    if side is not None and side.speedup is not None:
        tiles.append((f"{side.speedup.median:.2f}×", f"plain speed, {chosen}, {cell.key}"))
    if side is not None and side.acceptance is not None:
        tiles.append((f"{side.acceptance.mean_acceptance_length:.2f}", "tokens a round, τ"))
    if side is not None and side.prediction is not None:
        both = f"{side.prediction.predicted:.2f} / {side.prediction.measured:.2f}"
        tiles.append((both, "speed-up while decoding, predicted / measured"))
    drafting = [each for every in report.cells for each in every.sides if each.drafts]
    compared, different = sum(each.num_compared for each in drafting), sum(len(each.different) for each in drafting)
    tiles.append((f"{compared - different} / {compared}", "texts the same as plain ones"))
    counted, by_usage = (
        sum(getattr(each, name) for every in report.cells for each in every.sides)
        for name in ("server_tokens", "usage_tokens")
    )
    if counted:
        tiles.append((f"{by_usage} / {counted}", "tokens by usage / by the servers' own counters"))
    inner = "".join(f'<div class="card tile"><b>{escape(big)}</b>{escape(small)}</div>' for big, small in tiles)
    return f'<div class="tiles">{inner}</div>'


def _over_cells(report: Report, series: Series) -> Iterator[str]:
    """Charts over concurrency, over context, and of costs."""
    first = report.cells[0]
    same_context = [cell for cell in report.cells if cell.context == first.context and cell.concurrency]
    same_load = [cell for cell in report.cells if cell.load == first.load]
    timed = {cell.key: number for number, cell in enumerate(c for c in report.cells if len(c.relative_cost) > 1)}
    figures = [
        _figure(
            "More requests at once",
            speed_chart(same_context, series, over="concurrency"),
            "Where a line meets the plain one, drafting stops to pay.",
        ),
        _figure(
            "Longer contexts",
            speed_chart(same_load, series, over="context"),
            "A longer context makes every row dearer, plain ones too.",
        ),
        _figure(
            "What further rows cost",
            cost_chart(report.cells),
            "The flatter, the cheaper it is to check guesses.",
            _legend(timed) if len(timed) > 1 else "",
        ),
    ]
    shown = "".join(figures)
    if shown:
        yield f'<h2>Over load and context</h2><div class="charts">{shown}</div>'


def _cell(cell: CellFigures, series: Series, *, is_open: bool) -> Iterator[str]:
    waiting = (
        ("First token", "Time to the first token", lambda side: side.latency.first_token_s),
        ("Pauses", "Time between one arrival of text and the next", lambda side: side.latency.pause_s),
        ("Whole requests", "Time from a request's coming to its end", lambda side: side.latency.request_s),
    )
    figures = [
        _figure(
            "Speed-up by kind of traffic",
            category_chart(cell, series),
            "Median over the repeats, from the lowest to the highest; left of the line drafting costs.",
        ),
        _figure(
            "Break-even",
            break_even_chart(cell, series),
            "Lines: predicted from measured costs, τ / (v + c). Marks: this run. Where a line crosses 1, it pays.",
        ),
        _figure(
            "Acceptance by depth",
            acceptance_chart(cell, series),
            "Lines: accepted, if all before was. Dotted: all up to this depth kept.",
        ),
        *(
            _figure(name, waiting_chart(cell, series, name, pick), f"{caption}; marks at 50 and 95 %.")
            for name, caption, pick in waiting
        ),
    ]
    yield f"<h2>With {escape(cell.key)}</h2>" if is_open else f"<details><summary>With {escape(cell.key)}</summary>"
    yield f'<div class="charts">{"".join(figures)}</div>'
    if not is_open:
        yield "</details>"


def _samples(samples: Sequence[Sample], shown_side: str | None) -> Iterator[str]:
    """Texts that unfold; the first of the side that the verdict is about is unfolded."""
    if not samples:
        return
    yield "<h2>What was guessed</h2>"
    depths = "".join(
        f'<span><span class="d{depth}">&nbsp;{depth}{"+" if depth == NUM_DEPTHS else ""}&nbsp;</span></span>'
        for depth in range(1, NUM_DEPTHS + 1)
    )
    yield f'<div class="legend"><span>Guessed at depth</span>{depths}<span>bare: the model\'s own</span></div>'
    shown = next((sample for sample in samples if sample.side == shown_side), samples[0])
    for sample in samples:
        state = " open" if sample is shown else ""
        yield f"<details{state}><summary>{escape(sample.name)}, {escape(sample.side)}</summary>"
        yield f'<div class="text">{"".join(_piece(text, depth) for text, depth in sample.pieces)}</div></details>'


def _piece(text: str, depth: int) -> str:
    if not depth:
        return escape(text)
    return f'<span class="d{min(depth, NUM_DEPTHS)}" title="depth {depth}">{escape(text)}</span>'


def _table(cells: Sequence[CellFigures]) -> str:
    head = (
        "traffic", "side", "tokens/s", "speed-up", "predicted", "measured", "τ", "v", "c", "kept of drafted",
        "first token, ms", "a token, ms", "pauses, ms", "request, ms",
    )  # fmt: skip
    rows = []
    for cell in cells:
        for side in cell.sides:
            prediction, acceptance, latency = side.prediction, side.acceptance, side.latency
            parts = (
                ("", "", "", "", "")
                if prediction is None
                else tuple(
                    f"{value:.2f}"
                    for value in (
                        prediction.predicted,
                        prediction.measured,
                        prediction.mean_acceptance_length,
                        prediction.check_cost,
                        prediction.draft_cost,
                    )
                )
            )
            rows.append(
                (
                    cell.key,
                    side.label,
                    spread_text(side.tokens_per_s, 1),
                    spread_text(side.speedup, 2),
                    *parts,
                    "" if acceptance is None else f"{acceptance.accepted} / {acceptance.drafted}",
                    *(
                        percentiles(each)
                        for each in (latency.first_token_s, latency.token_s, latency.pause_s, latency.request_s)
                    ),
                )
            )
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return (
        '<p class="soft">Waiting times at p50 / p95 / p99. Predicted and measured speed-ups are of decoding alone.</p>'
        f'<div class="scroll"><table><tr>{_cells("th", head)}</tr>{body}</table></div>'
    )


def _cells(tag: str, values: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values)


def _figure(name: str, chart: str | None, caption: str, legend: str = "") -> str:
    if chart is None:
        return ""
    return f"<figure><h3>{escape(name)}</h3>{legend}{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _legend(series: Series) -> str:
    keys = "".join(f"<span>{legend_mark(number)}{escape(name)}</span>" for name, number in series.items())
    return f'<div class="legend">{keys}</div>'
