"""Documents out of text files and trees of them."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from headstart.errors import ConfigError
from headstart.train.corpus.vocabulary import END_OF_TEXT

_ZIPPED = ".gz"


def separated_documents(path: Path) -> Iterator[bytes]:
    """The documents of a text file: all of it, or what stands between lines that are `<|endoftext|>`.

    Raises:
        ConfigError: the file cannot be read.
    """
    separator, separated = END_OF_TEXT.encode(), False
    held: list[bytes] = []
    with reading(path), open_text(path) as file:
        for line in file:
            if line.strip() == separator:
                yield b"".join(held).strip(b"\r\n")
                held, separated = [], True
            else:
                held.append(line)
    if held:
        last = b"".join(held)
        # where there are several documents, the last one is no other than it would be with one after it
        yield last.strip(b"\r\n") if separated else last


def tree_documents(
    root: Path, patterns: Sequence[str], *, without: Sequence[str] = (), without_folders: Collection[str] = ()
) -> Iterator[bytes]:
    """The files of a tree, each a document, in the order of their paths, without hidden folders and links.

    Args:
        root: the folder.
        patterns: a file is taken if its name, without `.gz`, matches one; letters' case does not count.
        without: patterns of names that are not taken.
        without_folders: names of folders that are not entered.

    Raises:
        ConfigError: a folder or a file cannot be read.
    """
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in without_folders)
        for name in sorted(names):
            shown = name.removesuffix(_ZIPPED)
            path = Path(folder, name)
            # a link would bring its target twice, or lead out of the tree
            if _matches(shown, patterns) and not _matches(shown, without) and path.is_file() and not path.is_symlink():
                yield _content(path)


def open_text(path: Path) -> BinaryIO | gzip.GzipFile:
    """A file to read, unzipped if its name ends in .gz."""
    return gzip.open(path) if path.suffix == _ZIPPED else path.open("rb")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what fails while a file is read into an error that names it.

    Raises:
        ConfigError: it failed.
    """
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:  # the last two: what is zipped is damaged
        raise ConfigError(f"{path}: the text cannot be read ({error}). Name another.") from error


def _refuse(error: OSError) -> None:
    with reading(Path(error.filename)):
        raise error


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _content(path: Path) -> bytes:
    with reading(path), open_text(path) as file:
        return file.read()
