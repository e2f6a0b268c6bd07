from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headstart.measure.bench import Journal
from headstart.measure.report import make_report, write_report
from headstart.measure.report.document import Report

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Collects a page's tags and text, and refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def report(whole_run: tuple[dict[str, Any], Journal]) -> Report:
    subject, journal = whole_run
    return make_report(subject, {"date": "2026-11-30", "machine": {"cores": 2}}, journal, is_complete=True)


def test_the_document(report: Report, tmp_path: Path) -> None:
    paths = write_report(report, tmp_path / "new" / "folder")
    document = json.loads(paths[0].read_text())
    assert (document["schema"], document["version"], document["is_complete"]) == ("headstart-bench", 2, True)
    # the lightest load first, whatever the order in which they were measured
    assert [cell["key"] for cell in document["cells"]][:2] == ["1 at once, 128 tokens", "1 at once, 2048 tokens"]
    heads = document["cells"][0]["sides"][2]
    assert heads["side"] == "heads"
    assert heads["speedup"]["median"] == pytest.approx(1 / 0.7)
    assert heads["acceptance"]["conditional"] == [0.8, pytest.approx(28 / 30)]
    assert heads["prediction"]["predicted"] == pytest.approx(2.5 / (1.3 + 0.2))
    assert heads["prediction"]["break_even_length"] == pytest.approx(1.5)
    assert heads["prediction"]["measured"] == pytest.approx(1.0 / 0.6)
    assert document["cells"][0]["relative_cost"] == {"1": 1.0, "3": pytest.approx(1.3), "17": pytest.approx(5.0)}
    assert document["verdict"]["decision"] == "keep"
    assert document["samples"][0]["pieces"] == [["A <b>", 0], ["bold & ", 1], ["guess", 2]]


def test_the_page_is_sound_and_needs_nothing_else(report: Report, tmp_path: Path) -> None:
    text = write_report(report, tmp_path)[2].read_text()
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not {"href", "src"} & {name for _, attributes in page.tags for name in attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert report.verdict.sentence in "".join(page.words)


def test_the_page_shows_everything_that_was_promised(report: Report, tmp_path: Path) -> None:
    page = Page(write_report(report, tmp_path)[2].read_text())
    charts = [attributes["aria-label"] or "" for tag, attributes in page.tags if tag == "svg" and "role" in attributes]
    for what in (
        "Speed-up by category", "Break-even", "Acceptance by depth", "Cost of passes", "Speed over requests at once",
        "Speed over tokens of a prompt", "First token", "Pauses", "Whole requests",
    ):  # fmt: skip
        assert any(label.startswith(what) for label in charts), what
    # once for each cell
    assert sum(label.startswith("Break-even") for label in charts) == 4
    depths = [attributes["class"] for tag, attributes in page.tags if attributes.get("title") in ("depth 1", "depth 2")]
    assert depths == ["d1", "d2"] * 2  # in the samples of two categories


def test_names_of_others_are_text_and_no_markup(report: Report, tmp_path: Path) -> None:
    _, markdown, page = (path.read_text() for path in write_report(report, tmp_path))
    assert "<model>" not in page
    assert "toy &lt;model&gt;" in page
    assert "A &lt;b&gt;" in page
    assert "| a very long \\| category |" in markdown


def test_charts_are_xml_and_stay_inside(report: Report, tmp_path: Path) -> None:
    text = write_report(report, tmp_path)[2].read_text()
    for piece in text.split("<svg")[1:]:
        chart = ElementTree.fromstring("<svg" + piece.split("</svg>")[0] + "</svg>")
        _, _, width, height = (float(number) for number in chart.attrib["viewBox"].split())
        for element in chart.iter():
            for name, most in (
                ("x", width),
                ("cx", width),
                ("x1", width),
                ("x2", width),
                ("y", height),
                ("cy", height),
            ):
                if name in element.attrib:
                    assert -1 <= float(element.attrib[name]) <= most + 1
            for point in element.attrib.get("points", "").split():
                x, y = (float(number) for number in point.split(","))
                assert -1 <= x <= width + 1
                assert -1 <= y <= height + 1


def test_markdown_has_the_figures(report: Report, tmp_path: Path) -> None:
    markdown = write_report(report, tmp_path)[1].read_text()
    assert markdown.startswith("# toy <model>: does drafting pay?\n\n**Keep heads: 1.43 times plain speed")
    assert "| heads | " in markdown
    assert "- heads: 16 of 16 texts equal the plain ones, by hash" in markdown
    assert "| v(R) | 1.00 | 1.30 | 5.00 |" in markdown
    assert "- machine cores: 2" in markdown


def test_a_run_that_was_stopped_is_reported_as_far_as_it_went(
    whole_run: tuple[dict[str, Any], Journal], tmp_path: Path
) -> None:
    subject, journal = whole_run
    for kept in (0, 1, 2):
        journal.turns[kept:] = []
        report = make_report(subject, {}, journal, is_complete=False)
        assert report.verdict.decision == "unknown" or kept == 2
        _, markdown, page = (path.read_text() for path in write_report(report, tmp_path))
        assert "stopped before its end" in markdown
        Page(page)


def test_a_difference_is_named(whole_run: tuple[dict[str, Any], Journal], tmp_path: Path) -> None:
    subject, journal = whole_run
    changed = journal.turns[2]
    wrong = replace(changed.requests[0], token_hash="other")
    journal.turns[2] = replace(changed, requests=(wrong, *changed.requests[1:]))
    report = make_report(subject, {}, journal, is_complete=True)
    markdown = write_report(report, tmp_path)[1].read_text()
    assert "- heads: 1 of 16 texts are **not** the plain ones: code-1" in markdown
