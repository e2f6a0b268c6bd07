from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headstart.measure.report.svg import Chart, Scale, doubling_ticks, round_ticks, span


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.93, 1.41, [1.0, 1.1, 1.2, 1.3, 1.4]),
        (0.0, 740.0, [0.0, 200.0, 400.0, 600.0]),
        (-1.0, 1.0, [-1.0, -0.5, 0.0, 0.5, 1.0]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert round_ticks(low, high) == pytest.approx(expected)


def test_doublings() -> None:
    assert doubling_ticks(1, 16) == [1, 2, 4, 8, 16]
    assert doubling_ticks(3, 17) == [2, 4, 8, 16, 32]
    assert len(doubling_ticks(1, 2.0**20)) <= 9


@pytest.mark.parametrize("values", [[0.93, 1.41], [5.0], [0.0], [-3.0, -2.9], [1e-7, 2e-7], [1e9]])
def test_a_span_holds_its_values_and_is_never_empty(values: list[float]) -> None:
    low, high = span(values)
    assert low < high
    assert all(low - 1e-12 <= value <= high + 1e-12 for value in values)
    low, high = span(values, include=1.0)
    assert low <= 1.0 <= high


def test_scales() -> None:
    linear = Scale(low=0, high=10, start=100, end=0)
    assert (linear(0), linear(5), linear(10)) == (100, 50, 0)
    doubling = Scale(low=1, high=16, start=0, end=100, is_log=True)
    assert [doubling(value) for value in (1, 2, 4, 16)] == pytest.approx([0, 25, 50, 100])


def test_a_chart_draws_what_it_is_told_and_escapes_names() -> None:
    chart = Chart('a "chart" <b>', (0, 10), (0, 1), x_label="x & y")
    chart.x_ticks([0, 5, 20])  # the last lies outside
    chart.curve([(0, 0), (10, 1)], 2, dashed=True)
    chart.mark((5, 0.5), 1, "a < b")
    drawn = ElementTree.fromstring(chart.render())
    assert drawn.attrib["aria-label"] == 'a "chart" <b>'
    (line,) = (element for element in drawn if element.tag == "polyline")
    assert line.attrib["class"] == "line s2 dashed"
    assert [element.text for element in drawn if element.attrib.get("class") == "tick"] == ["0", "5"]
    assert [element.text for element in drawn.iter("title")] == ["a < b"]
