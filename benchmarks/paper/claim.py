"""What a claim is: something that was said, jobs that try it, and what is made of their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paper.judgement import Comparison, overall

if TYPE_CHECKING:
    from paper.budgets import Budget
    from paper.stopwatch import Stopwatch
    from paper.workspace import Workspace

Figures = dict[str, Any]
"""What a job found, as JSON holds it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Job:
    """One piece of work, whose figures are kept in a file. Claims may share jobs.

    Attributes:
        name: of the job and its file; the same name is the same job.
        settings: what its figures depend on, as JSON holds it.
        run: does it; what it leaves behind in the workspace, such as a model, is there for jobs after it.
        estimate: seconds that it will take.
        builds_on: jobs whose leavings it takes up.
        timed: whether times are among its figures, so that nothing may run beside it.
    """

    name: str
    settings: Mapping[str, Any]
    run: Callable[[Workspace], Figures]
    estimate: Callable[[Stopwatch], float]
    builds_on: tuple[Job, ...] = ()
    timed: bool = False

    @property
    def all_settings(self) -> dict[str, Any]:
        """With those of the jobs that it builds on, by their names; figures of a file that has others are not its."""
        below = {f"{job.name}: {name}": value for job in self.builds_on for name, value in job.all_settings.items()}
        return {**self.settings, **below}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Figures side by side.

    Attributes:
        head: names of the columns.
        rows: of as many cells.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a plot.

    Attributes:
        label: of the line.
        points: x, and y of each seed.
    """

    label: str
    points: tuple[tuple[float, tuple[float, ...]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """Lines over an axis.

    Attributes:
        name: of the file, without a suffix.
        title, x_label, y_label: what is written at it.
        lines: that are drawn; each point with the range of its seeds.
        names: of the places 0, 1, ... if the horizontal axis has no numbers.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What the figures of a claim come to.

    Attributes:
        model: what was trained, in a few words with its size.
        data: on what, likewise.
        comparisons: by which the claim is judged.
        tables, plots: all figures.
        remarks: what else a reader has to know.
    """

    model: str
    data: str
    comparisons: tuple[Comparison, ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """What it comes to, in a few words."""
        return overall(self.comparisons)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Claim:
    """Something that was said of multi-token prediction.

    Attributes:
        name: by which it is asked for.
        statement: what is claimed.
        source: by whom, with the figures that were given.
        method: how it is tried here.
        jobs: that have to be done for it, each after those that it builds on.
        find: what their figures come to; called once all are done, with the figures by the names of jobs.
    """

    name: str
    statement: str
    source: str
    method: str
    jobs: Callable[[Budget], Iterable[Job]]
    find: Callable[[Budget, Mapping[str, Figures]], Finding]
