"""Jobs done by one process and by several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headstart.errors import HeadstartError
from paper import crew
from paper.budgets import SMALL, SMOKE, Budget
from paper.claim import Figures, Job
from paper.claims import CLAIMS
from paper.crew import do_all
from paper.page import distinct_jobs
from paper.workspace import Workspace


def job(name: str, *builds_on: Job, timed: bool = False, run: Callable[[Workspace], Figures] | None = None) -> Job:
    return Job(
        name=name, settings={}, run=run or (lambda workspace: {}), estimate=lambda stopwatch: 1.0,
        builds_on=builds_on, timed=timed,
    )  # fmt: skip


def nothing(*_: object) -> None:
    """Nobody is told."""


class Book:
    """Stands for other processes: what began and ended, in order; they end by themselves, the first begun first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.most_at_once = 0
        monkeypatch.setattr(crew, "_begin", self._begin)
        monkeypatch.setattr(crew, "_listen", self._listen)

    def _begin(self, workspace: Workspace, job: Job, versions: object) -> str:
        self.lines.append(f"+{job.name}")
        return job.name

    def _listen(self, under_way: dict[str, Any], show: object) -> None:
        self.most_at_once = max(self.most_at_once, len(under_way))
        ended = next(iter(under_way))
        del under_way[ended]
        self.lines.append(f"-{ended}")

    def here(self, name: str) -> Callable[[Workspace], Figures]:
        """Notes that this process does it."""

        def run(workspace: Workspace) -> Figures:
            self.lines.append(f"here {name}")
            return {}

        return run


def done(tmp_path: Path, jobs: Sequence[Job], workers: int) -> None:
    do_all(Workspace(tmp_path, SMOKE, threads=1), jobs, workers, dict, nothing, nothing)


def test_what_builds_on_another_waits_for_it_and_what_is_timed_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Book(monkeypatch)
    first, second, third = job("first"), job("second"), job("third")
    raced = job("raced", first, timed=True, run=book.here("raced"))
    scored = job("scored", first)
    done(tmp_path, [first, raced, scored, second, third], workers=2)
    assert book.most_at_once == 2
    assert book.lines == [
        "+first", "+second", "-first", "+scored", "-second", "+third", "-scored", "-third", "here raced",
    ]  # fmt: skip


def test_what_builds_on_something_timed_is_done_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book(monkeypatch)
    timed = job("timed", timed=True, run=book.here("timed"))
    done(tmp_path, [timed, job("after", timed)], workers=4)
    assert book.lines == ["here timed", "+after", "-after"]


def test_one_worker_is_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book(monkeypatch)
    names: list[str] = []
    jobs = [job(name, run=book.here(name)) for name in "abc"]
    do_all(Workspace(tmp_path, SMOKE, threads=1), jobs, 1, dict, names.append, nothing)
    assert book.lines == ["here a", "here b", "here c"]
    assert names == ["a", "b", "c"]


@pytest.mark.parametrize("name", CLAIMS)
def test_jobs_of_every_claim_come_after_those_that_they_build_on(name: str) -> None:
    done: set[str] = set()
    for each in distinct_jobs(CLAIMS[name], SMALL):
        assert {below.name for below in each.builds_on} <= done
        done.add(each.name)


def test_whatever_has_times_among_its_figures_is_done_alone() -> None:
    timed = {each.name for claim in CLAIMS.values() for each in distinct_jobs(claim, SMOKE) if each.timed}
    assert timed == {
        each.name for name in ("memory", "speed") for each in distinct_jobs(CLAIMS[name], SMOKE)
        if each.name.startswith(("memory", "drafting"))
    }  # fmt: skip


# ---- with real processes, which find jobs by their names among the claims


def trained(budget: Budget) -> list[Job]:
    pytest.importorskip("torch")
    return [each for each in distinct_jobs(CLAIMS["quality"], budget) if each.name.startswith("code")][:3]


def figures(workspace: Workspace, jobs: Sequence[Job]) -> list[Mapping[str, Any]]:
    """Without times."""
    found = [workspace.figures(each) for each in jobs]
    return [{name: value for name, value in (each or {}).items() if name != "training_s"} for each in found]


def test_several_processes_find_what_one_does(tmp_path: Path, little_budget: Budget) -> None:
    jobs = trained(little_budget)
    told: set[str] = set()
    for name, workers in (("one", 1), ("two", 2)):
        workspace = Workspace(tmp_path / name, little_budget, threads=1)
        workspace.corpus("code")
        do_all(workspace, jobs, workers, dict, nothing, lambda name, progress: told.add(f"{name} {progress.phase}"))
    one, two = (figures(Workspace(tmp_path / name, little_budget, threads=1), jobs) for name in ("one", "two"))
    # the corpora lie in other folders, but nothing else may differ
    assert one == two
    assert all(each["steps"] == little_budget.text_model.steps for each in two)
    assert {f"{each.name} training" for each in jobs} <= told


def test_a_failure_in_another_process_ends_all_and_names_what_failed(tmp_path: Path, little_budget: Budget) -> None:
    workspace = Workspace(tmp_path / "out", little_budget, threads=1)
    workspace.corpus("code")
    jobs = trained(little_budget)
    damaged = tmp_path / "out" / "smoke" / "jobs" / f"{jobs[1].name}.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    with pytest.raises(HeadstartError, match=rf"{jobs[1].name}\.json: damaged"):
        do_all(workspace, jobs, 3, dict, nothing, nothing)
    damaged.unlink()
    do_all(workspace, jobs, 3, dict, nothing, nothing)
    assert all(workspace.figures(each) for each in jobs)


def test_a_process_that_is_killed_is_told_of(
    tmp_path: Path, little_budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path / "out", little_budget, threads=1)
    workspace.corpus("code")
    original = crew._begin

    def killed(*arguments: Any) -> Any:
        worker = original(*arguments)
        worker.process.kill()
        return worker

    monkeypatch.setattr(crew, "_begin", killed)
    with pytest.raises(HeadstartError, match=r"code-n1-seed0: its process ended with -9"):
        do_all(workspace, trained(little_budget), 2, dict, nothing, nothing)
