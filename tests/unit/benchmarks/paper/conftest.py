"""A claim that is quickly tried, and little text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from paper.budgets import Budget
    from paper.claim import Claim, Figures, Finding, Job
    from paper.workspace import Workspace


@pytest.fixture
def little_budget(tmp_path: Path) -> Budget:
    """The smoke budget on a hundred little files."""
    from paper.budgets import SMOKE

    sources = tmp_path / "sources"
    sources.mkdir()
    for number in range(120):
        lines = "".join(f"def f{number}_{line}(x):\n    return x + {line * number}\n" for line in range(3 + number % 5))
        (sources / f"m{number}.py").write_text(lines)
    return replace(SMOKE, code=(f"tree:{sources}:*.py",), prose=(f"tree:{sources}:*[0-4].py",))


@pytest.fixture
def counting_claim() -> Callable[[str, list[str]], Claim]:
    """Makes a claim of two jobs that note that they were done."""
    from paper.claim import Claim, Finding, Job, Line, Plot, Table
    from paper.judgement import Comparison

    def make(name: str, done: list[str]) -> Claim:
        def job(number: int) -> Job:
            def run(workspace: Workspace) -> Figures:
                done.append(f"{name}-{number}")
                return {"value": number}

            return Job(name=f"{name}-{number}", settings={"sizes": (1, 2)}, run=run, estimate=lambda stopwatch: 1.0)

        def find(budget: Budget, figures: Any) -> Finding:
            values = tuple(2 + figures[f"{name}-{number}"]["value"] for number in (1, 2, 1))
            return Finding(
                model="a model",
                data="a | text",
                comparisons=(Comparison("one above none", values),),
                tables=(Table(head=("what", "value"), rows=(("one", "1"),)),),
                plots=(Plot(name="a-plot", title="t", x_label="x", y_label="y", lines=(
                    Line(label="l", points=((1.0, (1.0, 2.0)), (2.0, (3.0,)))),)),),
            )  # fmt: skip

        return Claim(
            name=name, statement=f"Claim {name}", source="someone", method="somehow", find=find,
            jobs=lambda budget: [job(1), job(2), job(1)],
        )  # fmt: skip

    return make
