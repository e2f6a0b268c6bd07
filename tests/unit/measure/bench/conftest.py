from __future__ import annotations

import pytest

from headstart.measure.bench import BenchSettings, Cell, FilledCell
from headstart.measure.workload import ClosedLoop, Prompt


@pytest.fixture
def settings() -> BenchSettings:
    cells = (Cell(load=ClosedLoop(1)), Cell(load=ClosedLoop(4)))
    return BenchSettings(sides=("none", "lookup", "heads"), cells=cells, repeats=2)


@pytest.fixture
def filled(settings: BenchSettings) -> list[FilledCell]:
    prompts = tuple(
        Prompt(id=f"{category}-{number}", category=category, messages=(("user", "x"),))
        for category in ("code", "maths")
        for number in range(2)
    )
    return [FilledCell(cell=cell, prompts=prompts, usual_tokens=10) for cell in settings.cells]
