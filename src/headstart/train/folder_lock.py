"""Folders that one process at a time may write to."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import TextIO
from weakref import WeakValueDictionary

from headstart.errors import ConfigError

_NAME = ".lock"


class FolderLock:
    """Keeps other processes out of a folder while it, or another lock of this process on that folder, lives.

    A process that is killed lets go. Where files cannot be locked, as on some network file systems, or none can be
    made, nobody is kept out.
    """

    def __init__(self, file: TextIO | None) -> None:
        """See `take`, which makes these."""
        self._file = file

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Lock a folder.

        Args:
            folder: made if need be.

        Raises:
            ConfigError: another process is at work in it, or it cannot be made.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: the folder cannot be made ({error.strerror}). Name another.") from error
        place = str(folder.resolve())
        lock = _held.get(place)
        if lock is None:
            lock = _held[place] = cls(_locked(folder))
        return lock


_held: WeakValueDictionary[str, FolderLock] = WeakValueDictionary()


def _locked(folder: Path) -> TextIO | None:
    try:
        file = (folder / _NAME).open("a", encoding="utf-8")
    except OSError:  # such as a finished run that was made read-only, which is only looked at
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise ConfigError(
                f"{folder}: another process is at work in this folder. Let it end, or name another folder."
            ) from error
        return None
    return file
