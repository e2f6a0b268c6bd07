"""Claims about multi-token prediction, tried at a small scale.

    python benchmarks/paper/run.py --out DIR --budget small --page docs/results/pretraining.md
    python benchmarks/paper/run.py speed grafted --out DIR --budget smoke --workers 2 --json

Claims are memory, speed, grafted, sequence, induction, polynomials, quality and loss-weights; without a name, all are
tried. What is finished stays in DIR, so the same command goes on where it was stopped. Nothing else should run
meanwhile where speed is measured. Needs PyTorch, and matplotlib for the page.
"""

from __future__ import annotations

import difflib
import itertools
import json
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts

if __name__ == "__main__":
    # a script's own folder is searched, where the package around it and its neighbours are not found
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from headstart.cli.phases import PhaseProgress, spoken_time
from headstart.errors import ConfigError, HeadstartError
from paper.budgets import BUDGETS
from paper.claim import Claim, Job
from paper.claims import CLAIMS
from paper.crew import do_all
from paper.page import State, distinct_jobs, state_of, write_page
from paper.stopwatch import Stopwatch
from paper.workspace import Workspace

if TYPE_CHECKING:
    # it brings torch, which a page of what is finished does without
    from headstart.train.phases import Progress

app = cyclopts.App(name="paper", help=__doc__, help_format="plaintext", suppress_keyboard_interrupt=False)


@app.default
def main(
    *claims: str,
    out: Path,
    budget: Literal["smoke", "small", "full"] = "small",
    threads: int = 1,
    workers: int = 1,
    page: Path | None = None,
    only_estimate: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    only_page: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False,
) -> int:
    """Try claims.

    Args:
        claims: names; all by default.
        out: folder of everything that is made.
        budget: what is spent: smoke (minutes, shows that it works), small (hours on two cores) or full (days).
        threads: of the CPU, for each process; the same number gives the same models.
        workers: processes at once, but where time is measured.
        page: Markdown file to write all claims of the budget to, with plots in a folder beside it; what it says of
            claims that are not finished in `out` stays.
        only_estimate: say how long it would take, and do nothing.
        only_page: run nothing, write the page of what is finished.
        as_json: end with one JSON document on the last line.
    """
    if only_estimate and only_page:
        raise ConfigError("--only-estimate and --only-page exclude each other: leave one out.")
    if only_page and page is None:
        raise ConfigError("--only-page writes nothing without --page: name the file.")
    for name, count in (("threads", threads), ("workers", workers)):
        if count < 1:
            raise ConfigError(f"--{name} = {count}: it must be at least 1.")
    chosen = _chosen(claims)
    workspace = Workspace(out, BUDGETS[budget], threads)
    if not only_page:
        left = _estimate(workspace, chosen)
        if not only_estimate:
            _do(workspace, left, workers)
    states = [state_of(claim, workspace) for claim in CLAIMS.values()]
    asked = [state for state in states if state.claim in chosen]
    if page is not None:
        write_page(page, states, workspace.budget, threads)
    for state in asked:
        _tell(state)
    if as_json:
        print(json.dumps({"budget": budget, "threads": threads, "claims": [state.to_json() for state in asked]}))
    return 0


def _chosen(names: Sequence[str]) -> list[Claim]:
    for name in names:
        if name not in CLAIMS:
            close = difflib.get_close_matches(name, CLAIMS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(CLAIMS)}."
            raise ConfigError(f"claim {name!r} is not known. {hint}")
    return [claim for name, claim in CLAIMS.items() if not names or name in names]


def _estimate(workspace: Workspace, claims: Sequence[Claim]) -> list[Job]:
    """Say how long each claim will take; the jobs that are left, each once."""
    stopwatch = Stopwatch(workspace)
    left: dict[str, Job] = {}
    for claim in claims:
        jobs = distinct_jobs(claim, workspace.budget)
        todo = [job for job in jobs if job.name not in left and workspace.figures(job) is None]
        seconds = sum(job.estimate(stopwatch) for job in todo)
        _say(f"{claim.name}: {len(todo)} of {len(jobs)} jobs are left, about {spoken_time(seconds)} of one process")
        left |= {job.name: job for job in todo}
    return list(left.values())


def _do(workspace: Workspace, jobs: Sequence[Job], workers: int) -> None:
    numbers = itertools.count(1)
    with PhaseProgress(only_lines=True) as lines:
        do_all(
            workspace,
            jobs,
            workers,
            _versions,
            begin=lambda name: _say(f"{next(numbers)} of {len(jobs)}: {name}"),
            show=partial(_show, lines),
        )


def _versions() -> dict[str, str]:
    import torch

    return {"torch": torch.__version__}


def _show(lines: PhaseProgress, job: str, progress: Progress) -> None:
    lines.show(f"{job}, {progress.phase}", progress.done, progress.total, progress.note)


def _tell(state: State) -> None:
    if state.finding is None:
        _say(f"{state.claim.name}: {state.num_done} of {state.num_jobs} jobs are done")
        return
    _say(f"{state.claim.name}: {state.claim.statement}")
    for comparison in state.finding.comparisons:
        _say(f"  {comparison}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run, with the failures that a user can act on as text; the exit status."""
    try:
        status: Any = app(arguments, result_action="return_value")
    except HeadstartError as failure:
        print(f"paper: {failure}", file=sys.stderr)
        return 2 if isinstance(failure, ConfigError) else 1
    except KeyboardInterrupt:
        print("Stopped; the same command goes on from here.", file=sys.stderr)
        return 130
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    # by default SIGTERM would skip all clean-up
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run())
