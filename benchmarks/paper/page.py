"""The page of all claims, written from the figures of finished jobs alone.

A claim whose jobs are not all finished keeps what the page says of it, so that claims may be tried one by one, in
folders that need not outlive them.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.train.whole_files import write_whole
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job
from paper.earlier_page import BUDGET, NOT_RUN, TRIED, EarlierPage
from paper.plots import draw
from paper.workspace import Workspace

_WIDTH = 120

_INTRODUCTION = """\
# Pretraining with several tokens: the claims at a small scale

What was said of multi-token prediction, mostly of models of 7 billion parameters, tried with models a thousand times
smaller on a CPU. Every figure here, and every word on how it came out, was written from the files of finished runs by

```console
$ {command}
```

which leaves claims as they stood that the runs in DIR have not finished.

A comparison *holds* if the mean over seeds lies above zero by more than Student's t allows to chance at 5 % (with
three seeds, by 4.3 of its standard errors), *does not hold* if it lies below by as much, and is *within noise*
otherwise. Where there is nothing to be found, one comparison in twenty comes out one way or the other all the same.
Fewer than three seeds decide nothing. Figures are means, with the range over seeds in brackets. Tokens a pass count the
trunk's own.

A young model repeats itself, and what repeats is easy to guess: beside tokens a pass stands the share of distinct runs
of eight bytes, and beside greedy texts those drawn at temperature 1, by which claims about drafting are judged where
they say nothing else.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """How far a claim is.

    Attributes:
        claim: which.
        num_done, num_jobs: finished jobs, and all.
        seconds: that the finished ones took.
        finding: what they come to, if all are done.
        machines: on which they were done, each once.
    """

    claim: Claim
    num_done: int
    num_jobs: int
    seconds: float
    finding: Finding | None
    machines: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        comparisons = () if self.finding is None else self.finding.comparisons
        return {
            "claim": self.claim.name,
            "statement": self.claim.statement,
            "jobs_done": self.num_done,
            "jobs": self.num_jobs,
            "seconds": self.seconds,
            "outcome": None if self.finding is None else self.finding.outcome,
            "comparisons": [
                {"says": each.says, "outcome": each.outcome, "differences": list(each.differences), "unit": each.unit}
                for each in comparisons
            ],
        }


def state_of(claim: Claim, workspace: Workspace) -> State:
    """How far a claim is in a workspace."""
    budget = workspace.budget
    jobs = distinct_jobs(claim, budget)
    done: dict[str, Figures] = {}
    machines: dict[str, None] = {}
    for job in jobs:
        figures = workspace.figures(job)
        if figures is not None:
            done[job.name] = figures
            machines[_spoken_machine(workspace.machine(job) or {})] = None
    return State(
        claim=claim,
        num_done=len(done),
        num_jobs=len(jobs),
        seconds=sum(workspace.seconds(job) for job in jobs),
        finding=claim.find(budget, done) if len(done) == len(jobs) else None,
        machines=tuple(machines),
    )


def distinct_jobs(claim: Claim, budget: Budget) -> list[Job]:
    """A claim's jobs, each once, in an order in which they can be done."""
    return list({job.name: job for job in claim.jobs(budget)}.values())


def write_page(path: Path, states: Sequence[State], budget: Budget, threads: int) -> None:
    """Write the page, with its plots in a folder of its name beside it.

    A page of the same budget that stands there already keeps what it says of claims that are not finished here.
    """
    earlier = EarlierPage.read(path, budget.name)
    words = ["python", "benchmarks/paper/run.py", "--budget", budget.name, "--threads", str(threads)]
    command = shlex.join([*words, "--out", "DIR", "--page", str(path)])
    lines = [_INTRODUCTION.format(command=command), *_overview(states, budget, earlier)]
    for state in states:
        kept = earlier.section(state.claim) if state.finding is None else ()
        lines += kept or _section(state, path)
    write_whole(path, "\n".join(lines).rstrip() + "\n")


def _overview(states: Sequence[State], budget: Budget, earlier: EarlierPage) -> Iterator[str]:
    head = ("claim", "model", "data", "seeds", "time of all runs", "outcome")
    yield f"{BUDGET.format(budget.name)} Claims share runs, so times do not add up."
    yield ""
    rows = []
    for state in states:
        kept = earlier.row(state.claim) if state.finding is None else ""
        rows.append(kept or _row(_overview_cells(state)))
    yield from _table(head, rows)


def _overview_cells(state: State) -> tuple[str, ...]:
    statement, finding = state.claim.statement, state.finding
    if finding is None:
        part = f"{state.num_done} of {state.num_jobs} jobs are done" if state.num_done else "nothing is done"
        return (statement, "–", "–", "–", "–", f"not run: {part}")
    seeds = str(len(finding.comparisons[0].differences))
    time = f"{state.seconds / 60:.0f} min"
    return (statement, finding.model, finding.data, seeds, time, finding.outcome)


def _section(state: State, page: Path) -> Iterator[str]:
    claim, finding = state.claim, state.finding
    yield f"## {claim.statement}"
    yield ""
    yield from _paragraph(f"Claimed by {claim.source}.")
    yield from _paragraph(TRIED.format(claim.method))
    if finding is None:
        yield NOT_RUN
        yield ""
        return
    yield from (f"- {comparison}" for comparison in finding.comparisons)
    yield ""
    for table in finding.tables:
        yield from _table(table.head, [_row(row) for row in table.rows])
    for plot in finding.plots:
        drawn = draw(plot, page.parent / page.stem)
        yield f"![{plot.title}: {plot.y_label} over {plot.x_label}]({page.stem}/{drawn.name})"
        yield ""
    for remark in finding.remarks:
        yield from _paragraph(remark)
    yield from _paragraph(f"Done on {'; '.join(state.machines)}.")


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""


def _table(head: Sequence[str], rows: Sequence[str]) -> Iterator[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from rows
    yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _spoken_machine(about: Mapping[str, Any]) -> str:
    machine, versions = about["machine"], about["versions"]
    spoken = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{machine['cpu']}, {about['threads']} thread{'s' * (about['threads'] > 1)} ({spoken})"
