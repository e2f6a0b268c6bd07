"""The benchmarks are scripts, not a package: their folder is put where a script's own folder is."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
