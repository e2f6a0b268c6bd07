"""Files that are there as a whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text under a name that always has the old or the new one."""
    partial = partial_path(path)
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # else a power cut could leave the name with nothing behind it
    os.replace(partial, path)


def settle(path: Path) -> None:
    """See to it that what a file holds, or which names a folder has, survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_path(path: Path) -> Path:
    """Where the text of a path is until it is whole; an interruption may leave it there."""
    return path.with_name(path.name + ".partial")
