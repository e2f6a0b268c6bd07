"""What a page says already: claims that were finished when it was written, perhaps in a folder that is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from paper.claim import Claim

BUDGET = "Budget: {}."
"""At the head of a page's overview."""

TRIED = "Tried: {}."
"""In each section."""

NOT_RUN = "Not run with this budget."
"""All that stands in the section of a claim that was not finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierPage:
    """A page as it stood.

    Attributes:
        rows: of the overview, by what is claimed.
        sections: lines of each, by what is claimed; of finished claims alone.
    """

    rows: Mapping[str, str]
    sections: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, path: Path, budget: str) -> EarlierPage:
        """Read it.

        Args:
            path: of the page. Nothing is kept of one that is not there.
            budget: nothing is kept of a page of another, either.
        """
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not any(line.startswith(BUDGET.format(budget)) for line in lines):
            return cls(rows={}, sections={})
        borders = [number for number, line in enumerate(lines) if line.startswith("## ")]
        parts = [tuple(lines[begin:end]) for begin, end in pairwise([*borders, len(lines)])]
        sections = {part[0].removeprefix("## "): part for part in parts if NOT_RUN not in part}
        head = lines[: borders[0]] if borders else lines
        rows = {claimed: line for line in head for claimed in sections if line.startswith(f"| {claimed} |")}
        return cls(rows=rows, sections={claimed: part for claimed, part in sections.items() if claimed in rows})

    def section(self, claim: Claim) -> tuple[str, ...]:
        """Lines of a claim's section; none if it was not finished, or tried in another way."""
        lines = self.sections.get(claim.statement, ())
        return lines if TRIED.format(claim.method) in " ".join(lines) else ()

    def row(self, claim: Claim) -> str:
        """Its row, if there is a section."""
        return self.rows[claim.statement] if self.section(claim) else ""
