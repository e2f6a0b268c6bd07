"""Small charts as SVG text: axes, lines, marks. Colours and fonts are the page's, by class, so they follow its mode.

A chart is 400 units wide, about a phone's width, so that its text can be read there as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 400

Point = tuple[float, float]
Say = Callable[[float], str]

_TICKS = 5
_MARKS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Values along an axis.

    Attributes:
        low, high: values at its ends; `low` < `high`, both above 0 if it is logarithmic.
        start, end: where these lie in the chart.
        is_log: equal ratios take equal lengths.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def round_ticks(low: float, high: float) -> list[float]:
    """Some five round values between two, such as 0, 0.5, 1."""
    step = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(factor * step for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= _TICKS)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def doubling_ticks(low: float, high: float) -> list[float]:
    """Powers of two from one value to another, not more than some eight."""
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    step = max(1, math.ceil((last - first) / 8))
    return [2.0**exponent for exponent in range(first, last + 1, step)]


def span(values: Sequence[float], *, include: float | None = None) -> tuple[float, float]:
    """Least and greatest of some values, widened to whole ticks; of at least one value."""
    seen = [*values, *([] if include is None else [include])]
    low, high = min(seen), max(seen)
    if high - low < 1e-9 * max(abs(high), 1.0):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    ticks = round_ticks(low, high)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


class Chart:
    """A chart that grows by what is drawn in it.

    Args:
        title: said to those who cannot see it.
        x: (low, high) of the horizontal axis.
        y: of the vertical one.
        x_label: what stands along the horizontal axis.
        y_label: what stands over the vertical axis.
        log_x: see `Scale`.
        height: of the chart.
        left: room for what stands left of the axis.
    """

    def __init__(
        self,
        title: str,
        x: Point,
        y: Point,
        *,
        x_label: str,
        y_label: str = "",
        log_x: bool = False,
        height: int = 260,
        left: int = 44,
    ) -> None:
        self._title = title
        self._height = height
        self._top = 26 if y_label else 10
        self.x = Scale(low=x[0], high=x[1], start=left, end=WIDTH - 14, is_log=log_x)
        self.y = Scale(low=y[0], high=y[1], start=height - 42, end=self._top)
        self._parts: list[str] = []
        self._text(WIDTH - 14, height - 6, x_label, "label", anchor="end")
        if y_label:
            self._text(2, 12, y_label, "label")

    def x_ticks(self, ticks: Sequence[float], say: Say = lambda value: f"{value:g}") -> None:
        """Mark values along the horizontal axis."""
        for tick in ticks:
            if self.x.low <= tick <= self.x.high:
                at = self.x(tick)
                self._line((at, self.y.start), (at, self.y.end), "grid")
                self._text(at, self.y.start + 16, say(tick), "tick", anchor="middle")

    def y_ticks(self, ticks: Sequence[float], say: Say = lambda value: f"{value:g}") -> None:
        """Mark values along the vertical axis."""
        for tick in ticks:
            if self.y.low <= tick <= self.y.high:
                at = self.y(tick)
                self._line((self.x.start, at), (self.x.end, at), "grid")
                self._text(self.x.start - 6, at + 4, say(tick), "tick", anchor="end")

    def level(self, value: float) -> None:
        """A line across at a value of the vertical axis."""
        self._line((self.x.start, self.y(value)), (self.x.end, self.y(value)), "level")

    def upright(self, value: float) -> None:
        """A line upward at a value of the horizontal axis."""
        self._line((self.x(value), self.y.start), (self.x(value), self.y.end), "level")

    def curve(self, points: Sequence[Point], series: int, *, dashed: bool = False) -> None:
        """A line through points of a series."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self._parts.append(f'<polyline class="line s{series}{" dashed" if dashed else ""}" points="{path}"/>')

    def mark(self, point: Point, series: int, note: str) -> None:
        """A point of a series, in its colour and shape, with a note for the pointer."""
        x, y = self.x(point[0]), self.y(point[1])
        shape = (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
            f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>',
            f'<path d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>',
            f'<path d="M{x:.1f} {y - 5.5:.1f}l5.5 9.5h-11z"/>',
        )[series % _MARKS]
        self._parts.append(f'<g class="mark s{series}"><title>{escape(note)}</title>{shape}</g>')

    def whisker(self, low: Point, high: Point, series: int) -> None:
        """A line from the lowest to the highest of a figure's repetitions."""
        self._line((self.x(low[0]), self.y(low[1])), (self.x(high[0]), self.y(high[1])), f"whisker s{series}")

    def row_label(self, y: float, text: str) -> None:
        """A name left of the axis."""
        self._text(self.x.start - 8, self.y(y) + 4, text, "row", anchor="end")

    def render(self) -> str:
        """The SVG element."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self._height}" role="img" aria-label="{escape(self._title)}">'
            f"{''.join(self._parts)}</svg>"
        )

    def _line(self, start: Point, end: Point, kind: str) -> None:
        self._parts.append(
            f'<line class="{kind}" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
        )

    def _text(self, x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> None:
        self._parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')


def legend_mark(series: int) -> str:
    """The mark of a series, for a legend."""
    shape = (
        '<circle cx="6" cy="6" r="4.5"/>',
        '<rect x="2" y="2" width="8" height="8"/>',
        '<path d="M6 .5l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>',
        '<path d="M6 .5l5.5 9.5h-11z"/>',
    )[series % _MARKS]
    return f'<svg class="key" viewBox="0 0 12 12" aria-hidden="true"><g class="mark s{series}">{shape}</g></svg>'
