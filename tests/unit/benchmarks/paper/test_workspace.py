"""What is finished in a folder, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.errors import CheckpointError, ConfigError
from paper.budgets import SMOKE
from paper.claim import Claim, Figures
from paper.page import distinct_jobs, state_of
from paper.workspace import Workspace


def test_a_finished_job_is_not_done_again_and_a_claim_has_no_outcome_before_all_are(
    tmp_path: Path, counting_claim: Callable[[str, list[str]], Claim]
) -> None:
    done: list[str] = []
    claim = counting_claim("c", done)
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    first, second = distinct_jobs(claim, SMOKE)
    workspace.do(first, dict)
    assert state_of(claim, workspace).to_json()["outcome"] is None
    again = Workspace(tmp_path, SMOKE, threads=1)
    again.do(first, dict)
    again.do(second, dict)
    assert done == ["c-1", "c-2"]
    state = state_of(claim, again).to_json()
    assert (state["jobs_done"], state["jobs"], state["outcome"]) == (2, 2, "holds")
    assert state["comparisons"][0]["differences"] == [3.0, 4.0, 3.0]


def test_a_job_that_was_done_with_other_settings_is_refused(
    tmp_path: Path, counting_claim: Callable[[str, list[str]], Claim]
) -> None:
    job = distinct_jobs(counting_claim("c", []), SMOKE)[0]
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    workspace.do(job, dict)
    with pytest.raises(
        ConfigError, match=r"c-1\.json was done with other settings: sizes was \[1, 2\] and is now \[1\]"
    ):
        workspace.figures(replace(job, settings={"sizes": (1,)}))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "c-1"}'])
def test_a_damaged_file_of_figures_is_named(
    tmp_path: Path, text: str, counting_claim: Callable[[str, list[str]], Claim]
) -> None:
    job = distinct_jobs(counting_claim("c", []), SMOKE)[0]
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    workspace.do(job, dict)
    (tmp_path / "smoke" / "jobs" / "c-1.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"c-1\.json: damaged"):
        workspace.figures(job)


def test_a_job_that_fails_leaves_no_figures(tmp_path: Path, counting_claim: Callable[[str, list[str]], Claim]) -> None:
    def fail(workspace: Workspace) -> Figures:
        raise KeyboardInterrupt

    job = replace(distinct_jobs(counting_claim("c", []), SMOKE)[0], run=fail)
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    with pytest.raises(KeyboardInterrupt):
        workspace.do(job, dict)
    assert workspace.figures(job) is None


def test_a_folder_is_the_same_however_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corpora keep where their sources lie, and refuse others."""
    monkeypatch.chdir(tmp_path)
    given = (Path("out"), tmp_path / "out")
    relative, absolute = (Workspace(out, SMOKE, threads=1).corpus_folder("code") for out in given)
    assert relative == absolute
