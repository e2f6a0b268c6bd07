"""Jobs done by several processes: trainings beside each other, what is timed alone."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.errors import HeadstartError
from paper.budgets import Budget
from paper.claim import Job
from paper.claims import CLAIMS
from paper.workspace import Workspace

if TYPE_CHECKING:
    from headstart.train.phases import Progress  # it brings torch

Versions = Callable[[], Mapping[str, str]]
"""See `Workspace.do`."""

BeginJob = Callable[[str], None]
"""Told that a job begins, by its name."""

ShowJob = Callable[[str, "Progress"], None]
"""Told of the progress of a job, by its name."""

# threads of PyTorch do not outlive a fork
_processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    job: Job
    process: SpawnProcess
    pipe: Connection


def do_all(
    workspace: Workspace, jobs: Sequence[Job], workers: int, versions: Versions, begin: BeginJob, show: ShowJob
) -> None:
    """Do jobs, each after those that it builds on.

    Args:
        workspace: holds the texts of all that is trained, for processes that began at once would all prepare them.
        jobs: of `CLAIMS`, and what they build on before them, unless it is done.
        workers: processes at once, each with the workspace's threads. One is this process, and so is the one of a job
            that is timed, while no other works.
        versions: as for `Workspace.do`.
        begin, show: told of every job and its progress.

    Raises:
        HeadstartError: a job failed. Others that were under way were ended; they go on when they are done again.
    """
    left = {job.name: job for job in jobs}
    under_way: dict[str, _Worker] = {}
    try:
        while left or under_way:
            for job in _ready(left, under_way) if workers > 1 else ():
                if len(under_way) < workers:
                    begin(job.name)
                    under_way[job.name] = _begin(workspace, left.pop(job.name), versions)
            if under_way:
                _listen(under_way, show)
            else:
                job = left.pop(next(iter(left)))
                begin(job.name)
                workspace.show = partial(show, job.name)
                workspace.do(job, versions)
    finally:
        for worker in under_way.values():
            worker.process.terminate()
            worker.process.join()


def _ready(left: Mapping[str, Job], under_way: Mapping[str, _Worker]) -> list[Job]:
    """What can be done beside other jobs now."""
    undone = left.keys() | under_way.keys()
    return [job for job in left.values() if not job.timed and all(below.name not in undone for below in job.builds_on)]


def _begin(workspace: Workspace, job: Job, versions: Versions) -> _Worker:
    pipe, far_end = _processes.Pipe(duplex=False)
    arguments = (far_end, workspace.out, workspace.budget, workspace.threads, job.name, versions)
    process = _processes.Process(target=_work, args=arguments, name=job.name, daemon=True)
    process.start()
    far_end.close()  # the other process's is the only one, so that its end is the pipe's
    return _Worker(job, process, pipe)


def _listen(under_way: dict[str, _Worker], show: ShowJob) -> None:
    """Wait for news, and take leave of those that have ended."""
    told = wait([worker.pipe for worker in under_way.values()])
    for worker in [worker for worker in under_way.values() if worker.pipe in told]:
        try:
            news = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            if worker.process.exitcode:
                raise HeadstartError(f"{worker.job.name}: its process ended with {worker.process.exitcode}.") from None
            del under_way[worker.job.name]
            continue
        if isinstance(news, HeadstartError):
            raise news
        show(worker.job.name, news)


def _work(pipe: Connection, out: Path, budget: Budget, threads: int, name: str, versions: Versions) -> None:
    """A process of its own: does one job, and tells of its progress, or why it failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to all; the one that began this ends it
    workspace = Workspace(out, budget, threads)
    workspace.show = pipe.send
    (job,) = {job.name: job for claim in CLAIMS.values() for job in claim.jobs(budget) if job.name == name}.values()
    try:
        workspace.do(job, versions)
    except HeadstartError as failure:
        pipe.send(failure)
