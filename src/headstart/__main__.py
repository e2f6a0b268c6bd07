"""`python -m headstart`."""

import sys

from headstart.cli.entry import run

if __name__ == "__main__":
    sys.exit(run())
