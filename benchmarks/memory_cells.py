"""A cell of a table of memory: one process, whose peak is the operating system's.

So nothing that an allocator keeps from one cell counts in another.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

TARGET = 1.15
"""Peak memory with four heads over that with one, at most."""


def run_cell(script: str, *arguments: object, threads: int | None = None) -> dict[str, Any]:
    """Run the command `cell` of a script in a process of its own.

    Args:
        script: its file; the last line that it writes is one JSON object.
        arguments: of the command.
        threads: of the CPU; by default what the libraries take.

    Returns:
        That object.
    """
    command = [sys.executable, script, "cell", *map(str, arguments)]
    environment = dict(os.environ) if threads is None else os.environ | {"OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def peak_bytes() -> int:
    """Of this process since it began to run this program.

    The usage that Linux reports counts the parent from before that as well, which may have trained a model.
    """
    status = _status("VmHWM")
    if status is not None:
        return status
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_bytes() -> int:
    """Of this process now; where the system does not tell, its peak."""
    return _status("VmRSS") or peak_bytes()


def _status(name: str) -> int | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
