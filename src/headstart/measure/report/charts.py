"""The charts of a report. A side has the same colour and mark in all of them: its place among the sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headstart.measure.numbers import significant
from headstart.measure.report.figures import CellFigures, SideFigures
from headstart.measure.report.latency import Distribution
from headstart.measure.report.svg import Chart, doubling_ticks, round_ticks, span

Series = Mapping[str, int]
"""Number of each side's colour and mark."""

_ROW = 26
_LONGEST_NAME = 16


def category_chart(cell: CellFigures, series: Series) -> str | None:
    """Speed-up by category, with the spread over repeats."""
    sides = [side for side in cell.sides if side.speedup_by_category]
    categories = list(dict.fromkeys(category for side in sides for category in side.speedup_by_category))
    if not categories:
        return None
    spreads = [spread for side in sides for spread in side.speedup_by_category.values()]
    x = span([value for spread in spreads for value in (spread.lowest, spread.highest)], include=1.0)
    chart = Chart(
        f"Speed-up by category with {cell.key}",
        x,
        (len(categories), 0),
        x_label="times plain speed",
        height=_ROW * len(categories) + 56,
        left=112,
    )
    chart.x_ticks(round_ticks(*x))
    chart.upright(1.0)
    for row, category in enumerate(categories):
        chart.row_label(row + 0.5, _shortened(category))
        for place, side in enumerate(sides):
            spread = side.speedup_by_category.get(category)
            if spread is not None:
                y = row + (place + 1) / (len(sides) + 1)
                chart.whisker((spread.lowest, y), (spread.highest, y), series[side.side])
                chart.mark((spread.median, y), series[side.side], f"{side.side}, {category}: {spread}")
    return chart.render()


def break_even_chart(cell: CellFigures, series: Series) -> str | None:
    """Predicted speed-up over tokens a round, at this run's costs, with this run's points."""
    sides = [(side, side.prediction) for side in cell.sides if side.prediction is not None]
    if not sides:
        return None
    most = 1.25 * max(max(each.mean_acceptance_length, each.break_even_length) for _, each in sides)
    x = (1.0, max(most, 2.0))
    ends = [x[1] / each.break_even_length for _, each in sides] + [1 / each.break_even_length for _, each in sides]
    y = span([*ends, *(each.measured for _, each in sides)], include=1.0)
    chart = Chart(f"Break-even with {cell.key}", x, y, x_label="tokens a round, τ", y_label="speed-up while decoding")
    chart.x_ticks(round_ticks(*x))
    chart.y_ticks(round_ticks(*y))
    chart.level(1.0)
    for side, each in sides:
        needed = each.break_even_length
        chart.curve([(1.0, 1 / needed), (x[1], x[1] / needed)], series[side.side])
        chart.mark(
            (each.mean_acceptance_length, each.measured),
            series[side.side],
            f"{side.side}: {each.mean_acceptance_length:.2f} tokens a round, measured {each.measured:.2f}, predicted "
            f"{each.predicted:.2f}; breaks even at {needed:.2f}",
        )
    return chart.render()


def acceptance_chart(cell: CellFigures, series: Series) -> str | None:
    """Conditional acceptance (lines) and survival (dashed) by depth."""
    sides = [(side, side.acceptance) for side in cell.sides if side.acceptance is not None and side.acceptance.drafted]
    depth = max((len(acceptance.conditional) for _, acceptance in sides), default=0)
    if not depth:
        return None
    chart = Chart(f"Acceptance by depth with {cell.key}", (0.5, depth + 0.5), (0, 1), x_label="depth", y_label="share")
    chart.x_ticks(range(1, depth + 1))
    chart.y_ticks([0, 0.25, 0.5, 0.75, 1])
    for side, acceptance in sides:
        number = series[side.side]
        for values, name, dashed in (
            (acceptance.conditional, "accepted, if reached", False),
            (acceptance.survival, "kept so far", True),
        ):
            points = [(float(place), value) for place, value in enumerate(values, start=1)]
            chart.curve(points, number, dashed=dashed)
            for place, (point, reached) in enumerate(zip(points, acceptance.reached, strict=True), start=1):
                chart.mark(point, number, f"{side.side}, depth {place}: {name} {point[1]:.2f} (of {reached} rounds)")
    return chart.render()


def cost_chart(cells: Sequence[CellFigures]) -> str | None:
    """v(R), one line for each cell."""
    timed = [cell for cell in cells if len(cell.relative_cost) > 1]
    if not timed:
        return None
    rows = [row for cell in timed for row in cell.relative_cost]
    # the line of a pass that cost as much for each further row would leave the chart
    y = span([value for cell in timed for value in cell.relative_cost.values()], include=1.0)
    x = (float(min(rows)), float(max(rows)))
    chart = Chart("Cost of passes", x, y, x_label="rows of a pass, R", y_label="v(R) = C(R) / C(1)", log_x=True)
    chart.x_ticks(doubling_ticks(*x))
    chart.y_ticks(round_ticks(*y))
    for number, cell in enumerate(timed):
        points = [(float(row), value) for row, value in cell.relative_cost.items()]
        chart.curve(points, number)
        for row, value in points:
            chart.mark((row, value), number, f"{cell.key}: {row:g} rows, {value:.2f}")
    return chart.render()


def speed_chart(cells: Sequence[CellFigures], series: Series, *, over: str) -> str | None:
    """Tokens a second over requests at once, or over context.

    Args:
        cells: that differ in this alone.
        series: of the sides.
        over: "concurrency" or "context".
    """
    places = {cell.key: getattr(cell, over) for cell in cells}
    cells = sorted(cells, key=lambda cell: places[cell.key] or 0)
    if len(set(places.values())) < 2 or None in places.values():
        return None
    x = (float(min(places.values())), float(max(places.values())))
    spreads = [side.tokens_per_s for cell in cells for side in cell.sides if side.tokens_per_s is not None]
    y = span([value for spread in spreads for value in (spread.lowest, spread.highest)], include=0.0)
    label = "requests at once" if over == "concurrency" else "tokens of a prompt"
    chart = Chart(f"Speed over {label}", x, y, x_label=label, y_label="tokens/s of all", log_x=True)
    chart.x_ticks(sorted({float(place) for place in places.values()}))
    chart.y_ticks(round_ticks(*y))
    for name, number in series.items():
        found = [
            (float(places[cell.key]), side.tokens_per_s)
            for cell in cells
            if (side := cell.side(name)) is not None and side.tokens_per_s is not None
        ]
        chart.curve([(place, spread.median) for place, spread in found], number)
        for place, spread in found:
            chart.whisker((place, spread.lowest), (place, spread.highest), number)
            chart.mark((place, spread.median), number, f"{name}, {place:g}: {spread} tokens/s")
    return chart.render()


def waiting_chart(
    cell: CellFigures, series: Series, title: str, pick: Callable[[SideFigures], Distribution | None]
) -> str | None:
    """The share of waits that were no longer than so many milliseconds.

    Args:
        cell: of which.
        series: of the sides.
        title: what was waited for.
        pick: the waits of a side.
    """
    found = [(side.side, waits) for side in cell.sides if (waits := pick(side)) is not None]
    if not found:
        return None
    # the longest wait of many would squeeze all others
    x = span([1e3 * value for _, waits in found for value in (waits.points[0], waits.p99)])
    chart = Chart(f"{title} with {cell.key}", x, (0, 1), x_label="ms", y_label="share of waits", height=220)
    chart.x_ticks(round_ticks(*x))
    chart.y_ticks([0, 0.5, 0.95], lambda share: f"{100 * share:.0f} %")
    for name, waits in found:
        last = len(waits.points) - 1
        points = [(1e3 * value, place / last) for place, value in enumerate(waits.points)]
        chart.curve([point for point in points if point[0] <= x[1]], series[name])
        for share, value in ((0.5, waits.p50), (0.95, waits.p95)):
            chart.mark(
                (1e3 * value, share), series[name], f"{name}: {100 * share:.0f} % within {significant(1e3 * value)} ms"
            )
    return chart.render()


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
