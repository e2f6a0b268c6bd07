"""The page that is written of claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paper.budgets import SMOKE
from paper.claim import Claim
from paper.page import distinct_jobs, state_of, write_page
from paper.workspace import Workspace


def test_the_page_has_every_claim_and_says_of_those_not_run_that_they_are_not(
    tmp_path: Path, counting_claim: Callable[[str, list[str]], Claim]
) -> None:
    pytest.importorskip("matplotlib")
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    run, half, not_run = (counting_claim(name, []) for name in ("run", "half", "none"))
    for job in (*distinct_jobs(run, SMOKE), distinct_jobs(half, SMOKE)[0]):
        workspace.do(job, dict)
    page = tmp_path / "page.md"
    write_page(page, [state_of(claim, workspace) for claim in (run, half, not_run)], SMOKE, threads=1)
    text = page.read_text()
    assert "| Claim run | a model | a \\| text | 3 | 0 min | holds |" in text
    assert "| Claim half | – | – | – | – | not run: 1 of 2 jobs are done |" in text
    assert "| Claim none | – | – | – | – | not run: nothing is done |" in text
    assert text.count("Not run with this budget.") == 2
    assert "- one above none: holds (+3.33 on average; by seed +3, +4, +3)" in text
    assert "](page/a-plot.svg)" in text
    drawn = (tmp_path / "page" / "a-plot.svg").read_bytes()
    assert drawn.startswith(b"<?xml")
    write_page(page, [state_of(claim, workspace) for claim in (run, half, not_run)], SMOKE, threads=1)
    assert page.read_text() == text
    assert (tmp_path / "page" / "a-plot.svg").read_bytes() == drawn


def test_a_page_keeps_what_it_says_of_claims_that_are_not_finished_in_this_folder(
    tmp_path: Path, counting_claim: Callable[[str, list[str]], Claim]
) -> None:
    pytest.importorskip("matplotlib")
    first, second, third = (counting_claim(name, []) for name in ("first", "second", "third"))
    page, places = tmp_path / "page.md", [tmp_path / name for name in ("a", "b")]
    for claim, place in zip((first, second), places, strict=True):
        workspace = Workspace(place, SMOKE, threads=1)
        for job in distinct_jobs(claim, SMOKE):
            workspace.do(job, dict)
        write_page(page, [state_of(each, workspace) for each in (first, second, third)], SMOKE, threads=1)
    text = page.read_text()
    together = Workspace(tmp_path / "both", SMOKE, threads=1)
    for claim in (first, second):
        for job in distinct_jobs(claim, SMOKE):
            together.do(job, dict)
    whole = tmp_path / "whole" / "page.md"
    whole.parent.mkdir()
    write_page(whole, [state_of(each, together) for each in (first, second, third)], SMOKE, threads=1)
    assert text.count("| holds |") == 2
    assert text.count("not run: nothing is done") == 1
    assert text == whole.read_text().replace(str(whole), str(page))

    # of a claim that is tried in another way by now nothing is kept
    nothing = Workspace(tmp_path / "nothing", SMOKE, threads=1)
    write_page(page, [state_of(each, nothing) for each in (first, replace(second, method="twice"))], SMOKE, threads=1)
    assert page.read_text().count("| holds |") == 1

    # of another budget nothing is
    other = replace(SMOKE, name="other")
    write_page(page, [state_of(each, Workspace(tmp_path, other, threads=1)) for each in (first, second)], other, 1)
    assert page.read_text().count("Not run with this budget.") == 2
