"""Progress on stderr, for people only: where stderr is no terminal that can redraw a line, nothing is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SMALLEST_STEP = 0.02


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """A bar that is gone when it is done.

    Args:
        label: what is going on.

    Yields:
        A function that takes the share that is done, 0 to 1.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda share: None
        return
    # imported late: it takes longer than many a command
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # the label may be a file's name: neither a format string nor markup
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    # no refreshing thread: it would take time from the threads that compute
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(label, total=1.0)
        drawn = 0.0

        def show(share: float) -> None:
            nonlocal drawn
            if share - drawn >= _SMALLEST_STEP:  # drawing takes longer than loading a small matrix
                drawn = share
                bar.update(task, completed=share, refresh=True)

        yield show
