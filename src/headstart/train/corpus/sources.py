"""Where documents come from, by the names that users give: `stdlib`, `tree:src:*.py`, `jsonl:data.jsonl:text`, ..."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import ConfigError
from headstart.train.corpus import files, ready, tables

_FORMS = {
    "text": "text:FILE",
    "tree": "tree:FOLDER:PATTERNS, such as tree:src:*.py,*.pyi",
    "jsonl": "jsonl:FILE or jsonl:FILE:FIELD",
    "parquet": "parquet:FILE or parquet:FILE:COLUMN",
    "dataset": "dataset:NAME:SPLIT or dataset:NAME:SPLIT:COLUMN, with a folder or a name on the hub, or NAME@CONFIG",
    "stdlib": "stdlib",
    "docs": "docs",
}
_DEFAULT_FIELD = "text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Documents that can be read again and again, in the same order.

    Attributes:
        name: as users name it, or a part of that.
        about: what it is here, such as a version; may be empty.
        documents: gives their contents, as bytes that should be UTF-8.
    """

    name: str
    documents: Callable[[], Iterator[bytes]]
    about: str = ""


def parse_sources(names: Sequence[str]) -> list[Source]:
    """The sources of some names; a name may stand for several.

    Raises:
        ConfigError: there is no name, one comes twice, one is malformed, or a file of it does not exist.
        UnsupportedError: a package that reads it is not installed.
    """
    if not names:
        raise ConfigError(f"No source of text is named. Name some of {_allowed()}.")
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise ConfigError(f"Source {repeated[0]} is named twice; its documents would all be duplicates. Name it once.")
    return [source for name in names for source in _parse(name)]


def _parse(name: str) -> list[Source]:
    kind, separator, rest = name.partition(":")
    if kind not in _FORMS or bool(rest) != (":" in _FORMS[kind]) or (separator and not rest):
        close = difflib.get_close_matches(kind, _FORMS, n=1)
        allowed = f"Did you mean {_FORMS[close[0]]}?" if close else f"Allowed are {_allowed()}."
        raise ConfigError(f"Source {name!r} is not of a form that is known. {allowed}")
    match kind:
        case "stdlib":
            return [Source(name=name, about=ready.stdlib_version(), documents=ready.stdlib_documents)]
        case "docs":
            return [
                Source(name=f"{name}/{part}", about=about, documents=documents)
                for part, about, documents in ready.DOCUMENTATION
            ]
        case "text":
            path = _existing(name, rest)
            return [Source(name=name, documents=lambda: files.separated_documents(path))]
        case "tree":
            folder, _, patterns = rest.rpartition(":")
            if not folder or not patterns:
                raise ConfigError(f"Source {name!r}: it must have the form {_FORMS[kind]}.")
            root, globs = _existing(name, folder), tuple(patterns.split(","))
            return [Source(name=name, documents=lambda: files.tree_documents(root, globs))]
        case "dataset":
            return [Source(name=name, documents=_dataset(name, rest))]
    file, field = _file_and_field(rest)
    path = _existing(name, file)
    if kind == "parquet":
        tables.require_pyarrow()
        return [Source(name=name, documents=lambda: tables.parquet_documents(path, field))]
    return [Source(name=name, documents=lambda: tables.jsonl_documents(path, field))]


def _dataset(name: str, rest: str) -> Callable[[], Iterator[bytes]]:
    dataset, _, split = rest.partition(":")
    split, _, column = split.partition(":")
    if not split:
        raise ConfigError(f"Source {name!r}: it must have the form {_FORMS['dataset']}.")
    tables.require_datasets()
    dataset, _, config = dataset.partition("@")
    return lambda: tables.dataset_documents(dataset, config or None, split, column or _DEFAULT_FIELD)


def _file_and_field(rest: str) -> tuple[str, str]:
    """A path may hold colons, so what exists as a whole is one."""
    file, separator, field = rest.rpartition(":")
    if not separator or Path(rest).exists():
        return rest, _DEFAULT_FIELD
    return file, field


def _existing(name: str, path: str) -> Path:
    if not Path(path).exists():
        raise ConfigError(f"Source {name!r}: {path} does not exist. Name what is there.")
    return Path(path)


def _allowed() -> str:
    return "; ".join(_FORMS.values())
