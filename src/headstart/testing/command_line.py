"""The command line without a process: arguments and stdin in, exit status, stdout and stderr out."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.cli.main import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did.

    Attributes:
        status: the exit status.
        out: what went to stdout.
        err: what went to stderr.
    """

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document that is all of stdout."""
        (line,) = self.out.splitlines()
        document = json.loads(line)
        assert isinstance(document, dict)
        return document


def run_command(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
    """Run `headstart` with arguments; nothing is a terminal.

    Args:
        *arguments: those after the program's name.
        stdin: what a pipe would bring.
    """
    usual_stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            status = main([str(argument) for argument in arguments])
    finally:
        sys.stdin = usual_stdin
    return Outcome(status, out.getvalue(), err.getvalue())
