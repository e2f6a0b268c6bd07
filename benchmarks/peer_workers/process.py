"""How a benchmark speaks with an engine: the side of the benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FOLDER = Path(__file__).parent
TIMEOUT_S = 900.0  # an engine may compile for a minute or two before its first token


class WorkerFailureError(Exception):
    """A worker died, hung, or answered that its engine failed.

    Attributes:
        script: the worker's file.
    """

    def __init__(self, script: Path, reason: str) -> None:
        super().__init__(f"{script.stem}: {reason}")
        self.script = script


class UnsupportedCommandError(Exception):
    """The worker's engine has no such thing."""


class WorkerProcess:
    """A worker in a process group of its own, that can be paused.

    Args:
        python: the interpreter of the engine's environment.
        script: the worker's file.
    """

    def __init__(self, python: str | Path, script: Path) -> None:
        self._script = script
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        try:
            self._process = subprocess.Popen(
                [str(python), str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                start_new_session=True,
            )
        except OSError as failure:
            self._stderr.close()
            raise WorkerFailureError(self._script, f"{python} cannot be started: {failure.strerror}") from failure
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and wait for its answer.

        Raises:
            WorkerFailureError: the process ended, gave no answer in time, or reports an error.
            UnsupportedCommandError: the engine has no such thing.
        """
        watchdog = threading.Timer(TIMEOUT_S, self._signal, [signal.SIGKILL])
        watchdog.start()
        try:
            print(json.dumps({"command": command, **arguments}), file=self._input, flush=True)
            line = self._output.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise WorkerFailureError(self._script, f"no answer to {command}: {self._ending()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailureError(self._script, f"{command}: {answer['error']}")
        if "unsupported" in answer:
            raise UnsupportedCommandError(answer["unsupported"])
        return answer

    def pause(self) -> None:
        """Stop all threads of the worker: engines may spin for a while after their work is done."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run on."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the worker and whatever it started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        with suppress(BrokenPipeError):  # what a dead worker never read
            self._input.close()
        self._output.close()
        self._stderr.close()

    def _signal(self, number: int) -> None:
        # the group outlives its leader if the engine left children behind; one that is gone altogether is no error
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _ending(self) -> str:
        """How the process ended, and the last line it wrote: of a traceback, the one that says what happened."""
        with suppress(subprocess.TimeoutExpired):  # its end of the pipe is closed, so it is about to end
            self._process.wait(timeout=5)
        code = self._process.returncode
        cause = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").split("\n")
        last_words = next((line.strip() for line in reversed(lines) if line.strip()), "none")
        return f"{cause}; its last words: {last_words}"
