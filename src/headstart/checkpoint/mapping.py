"""Files as memory: mapped, read-only, never copied."""

from __future__ import annotations

import mmap
from pathlib import Path

from headstart.errors import CheckpointError


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file read-only.

    Arrays made from the map keep it alive; it is never closed by hand.

    Raises:
        CheckpointError: the file is missing, empty, unreadable, or no regular file.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for whoever writes to it
            raise CheckpointError(f"{path}: a pipe or a device, which cannot be mapped. Copy the model into a file.")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise CheckpointError(
            f"{path}: the file cannot be read ({error}). Check the path and its permissions, or fetch it again."
        ) from error
