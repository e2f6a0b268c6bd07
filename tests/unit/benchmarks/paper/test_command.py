"""What the command takes, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paper import run as command
from paper.claims import CLAIMS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sped"], "claim 'sped' is not known. Did you mean 'speed'?"),
        (["zzzz"], "claim 'zzzz' is not known. There are memory, speed, "),
        (["--threads", "0"], "--threads = 0: it must be at least 1"),
        (["--workers", "0"], "--workers = 0: it must be at least 1"),
        (["--only-page"], "--only-page writes nothing without --page"),
        (["--only-page", "--only-estimate", "--page", "x.md"], "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert command.run([*arguments, "--out", str(tmp_path), "--budget", "smoke"]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_page_of_nothing_is_written_and_the_document_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    arguments = ["speed", "--out", str(tmp_path / "out"), "--only-page", "--page", str(page), "--json"]
    assert command.run(arguments) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(each["claim"], each["outcome"], each["jobs_done"]) for each in document["claims"]] == [("speed", None, 0)]
    assert page.read_text().count("Not run with this budget.") == len(CLAIMS)
