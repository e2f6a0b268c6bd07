"""A run's report: all that was found, and the files it is written to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headstart.measure.bench.journal import Journal
from headstart.measure.bench.settings import PLAIN
from headstart.measure.report.figures import CellFigures, cell_figures
from headstart.measure.report.verdict import Verdict, judge

SCHEMA = "headstart-bench"
VERSION = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A text with what was guessed of it.

    Attributes:
        side: that wrote it.
        name: of the request.
        category: of its prompt.
        pieces: text of each token, and the depth at which it was guessed; 0 for the model's own.
    """

    side: str
    name: str
    category: str
    pieces: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All of a run.

    Attributes:
        subject: what was measured: model, prompts, settings.
        conditions: what it was measured on, and when.
        is_complete: whether all turns that were asked for are in it.
        cells: figures, of the lightest load first.
        verdict: on them.
        samples: some texts of the sides that draft.
    """

    subject: Mapping[str, Any]
    conditions: Mapping[str, Any]
    is_complete: bool
    cells: tuple[CellFigures, ...]
    verdict: Verdict
    samples: tuple[Sample, ...]

    @property
    def sides(self) -> tuple[str, ...]:
        """Names, the plain one first."""
        return tuple(self.subject["settings"]["sides"])

    def to_json(self) -> dict[str, Any]:
        """As plain data; docs/reference/report.md describes it."""
        document = {"schema": SCHEMA, "version": VERSION, **asdict(self)}
        for cell, figures in zip(document["cells"], self.cells, strict=True):
            for name in ("cost_ms", "relative_cost"):
                cell[name] = {str(rows): value for rows, value in cell[name].items()}
            for side, own in zip(cell["sides"], figures.sides, strict=True):
                if own.prediction is not None:
                    side["prediction"]["break_even_length"] = own.prediction.break_even_length
        return document


def make_report(
    subject: Mapping[str, Any], conditions: Mapping[str, Any], journal: Journal, *, is_complete: bool
) -> Report:
    """Work out a report from what a journal holds.

    Args:
        subject: as the journal has it, with the settings under "settings".
        conditions: further facts, such as the machine.
        journal: turns and costs.
        is_complete: whether the run is done.
    """
    settings = subject["settings"]
    figures = (cell_figures(cell, settings["sides"], journal.turns, journal.costs) for cell in settings["cells"])
    cells = tuple(sorted((each for each in figures if each.sides), key=lambda each: each.weight))
    return Report(
        subject=subject,
        conditions=conditions,
        is_complete=is_complete,
        cells=cells,
        verdict=judge(cells, is_exact="servers" not in subject),
        samples=_samples(journal),
    )


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.json, report.md and report.html; their paths."""
    from headstart.measure.report.markdown import render_markdown
    from headstart.measure.report.page import render_page

    texts = {
        "report.json": json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n",
        "report.md": render_markdown(report),
        "report.html": render_page(report),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _samples(journal: Journal) -> tuple[Sample, ...]:
    samples: Sequence[Sample] = [
        Sample(side=turn.side, name=request.name, category=request.category, pieces=request.sample)
        for turn in journal.turns
        if turn.side != PLAIN
        for request in turn.requests
        if request.sample
    ]
    return tuple(samples)
