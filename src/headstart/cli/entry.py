"""Where the command begins: Ctrl-C ends it quietly even before it is loaded."""

from __future__ import annotations

from headstart.cli import status


def run() -> int:
    """Load the command and run it with `sys.argv`.

    Returns:
        The exit status, as `headstart.cli.main.main`.
    """
    try:
        from headstart.cli.main import main  # within reach of the handler: it takes a tenth of a second

        return main()
    except KeyboardInterrupt:
        return status.INTERRUPTED
