"""Every benchmark tells how it is used, without loading what it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
PROGRAMS = sorted(
    path for path in (*FOLDER.glob("*.py"), FOLDER / "paper" / "run.py") if "__main__" in path.read_text()
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_help_is_told(program: Path) -> None:
    told = subprocess.run([sys.executable, str(program), "--help"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "Usage" in told.stdout
    assert told.stderr == ""
