"""A store of training text: a folder with a header and shards of documents.

The header says which model, tokenizer and chat template the ids belong to and
how they were chosen; a store is used with these and with no others. Shards are
only ever added, and the header says afterwards how far they go; so a store that
was interrupted anywhere is a whole, shorter one, and one whose header tells of
more than its shards hold has lost some. All counts are taken from the shards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from headstart.checkpoint import Checkpoint
from headstart.checkpoint.json_files import read_json_object
from headstart.errors import CheckpointError, ConfigError, UnsupportedError
from headstart.train.text_shard import Absent, Counts, Document, read_shard, write_shard
from headstart.train.whole_files import write_whole

__all__ = ["Absent", "Counts", "Document", "TextHeader", "TextSource", "TextStore"]

HEADER_NAME = "text.json"
_FORMAT = "headstart-text"
_VERSION = 1
_SHARD_NAME = re.compile(r"shard-(\d{5,})\.safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSource:
    """Who wrote a text: digests as hexadecimal digits.

    Attributes:
        model: of the weights.
        tokenizer: of the vocabulary and how it splits text.
        chat_template: of the default chat template; `None` if there is none.
    """

    model: str
    tokenizer: str
    chat_template: str | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """The digests of an opened model."""
        tokenizer = checkpoint.tokenizer()
        return cls(
            model=checkpoint.digest(),
            tokenizer=tokenizer.digest(),
            chat_template=tokenizer.chat_template_digest(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextHeader:
    """What a store is, fixed when it is made.

    Attributes:
        source: who wrote it.
        settings: how its tokens were chosen, as JSON would hold it.
        categories: names that documents may have.
    """

    source: TextSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    categories: tuple[str, ...] = ()


class TextStore:
    """Training text on disk.

    Attributes:
        path: the folder.
        header: what it is.
        counts: of all shards together.
        num_lost: prompts that the header tells of, and no shard: shards at the end are gone.

    Example:
        >>> store = TextStore.open("text", source=TextSource.of(checkpoint))
        >>> sum(document.supervised.sum() for document in store.documents()) == store.num_supervised
        True
    """

    def __init__(
        self, path: Path, header: TextHeader, shards: Sequence[Path], counts: Counts, num_lost: int = 0
    ) -> None:
        """See `create` and `open`, which make these."""
        self.path = path
        self.header = header
        self.counts = counts
        self.num_lost = num_lost
        self._shards = list(shards)

    @classmethod
    def create(cls, path: str | Path, header: TextHeader) -> Self:
        """Make an empty store.

        Args:
            path: a folder; made if need be, with those above it.
            header: what the store is to be.

        Raises:
            ConfigError: there is a store already, or the path is no folder.
        """
        path = Path(path)
        if (path / HEADER_NAME).exists():
            raise ConfigError(f"{path} is a store of text already. Open it to go on, or name another folder.")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: the folder cannot be made ({error.strerror}). Name another.") from error
        store = cls(path, header, (), Counts())
        store._write_header()
        return store

    @classmethod
    def open(cls, path: str | Path, *, source: TextSource | None = None) -> Self:
        """Open a store and check every shard that is there.

        Args:
            path: its folder.
            source: who must have written it; `None` if that does not matter.

        Raises:
            CheckpointError: there is none, a file of it is damaged or missing,
                or it is another model's, tokenizer's or template's.
            UnsupportedError: a later version of the format.
        """
        path = Path(path)
        header, told = _read_header(path / HEADER_NAME)
        if source is not None:
            check_source(path, header.source, source)
        shards = _find_shards(path)
        counts = Counts()
        for shard in shards:
            counts += read_shard(shard, header.categories).counts
        return cls(path, header, shards, counts, max(0, told - counts.num_asked))

    def append(self, outcomes: Sequence[Document | Absent]) -> None:
        """Add a shard, with which the header no longer tells of what was lost.

        Args:
            outcomes: what became of the next prompts, in order; plain documents if none was missed.

        Raises:
            ConfigError: nothing came, or a category that is not the store's.
            CheckpointError: another process added that shard.
        """
        if not outcomes:
            raise ConfigError("A shard without prompts was to be added; it must have at least one. Leave it out.")
        path = _shard_path(self.path, len(self._shards))
        self.counts += write_shard(path, outcomes, self.header.categories)
        self._shards.append(path)
        self.num_lost = 0
        self._write_header()

    def documents(self) -> Iterator[Document]:
        """All documents in the order of their prompts; one shard is in memory at a time.

        Raises:
            CheckpointError: a shard was damaged after the store was opened.
        """
        for shard in self._shards:
            yield from read_shard(shard, self.header.categories).documents

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return self.counts.num_tokens

    @property
    def num_supervised(self) -> int:
        """Tokens that may be learnt."""
        return self.counts.num_supervised

    def _write_header(self) -> None:
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            **asdict(self.header),
            "counts": {"num_asked": self.counts.num_asked, **asdict(self.counts)},
        }
        write_whole(self.path / HEADER_NAME, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def num_told(path: Path) -> int:
    """How many prompts a store answers for by its header, whatever its shards hold.

    Raises:
        CheckpointError, UnsupportedError: as `TextStore.open`, for the header.
    """
    return _read_header(path / HEADER_NAME)[1]


def check_source(path: Path, found: TextSource, expected: TextSource) -> None:
    """Refuse text that another model, tokenizer or chat template wrote.

    Args:
        path: the store, for the error.
        found: who wrote it.
        expected: who must have.

    Raises:
        CheckpointError: they differ; the text names in what.
    """
    for name in ("tokenizer", "chat_template", "model"):  # another tokenizer is the gravest difference
        if getattr(found, name) != getattr(expected, name):
            raise CheckpointError(
                f"{path}: the text was written with another {name.replace('_', ' ')} (digest {getattr(found, name)}, "
                f"here it is {getattr(expected, name)}). Name the model that wrote it, or write a text anew."
            )


def _read_header(path: Path) -> tuple[TextHeader, int]:
    """What a store is, and how many prompts its shards answer for."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent}: no store of text, as there is no {HEADER_NAME}. Name another folder.")
    document = read_json_object(path)
    if document.get("format") != _FORMAT:
        raise CheckpointError(f"{path}: format is {document.get('format')!r}, not {_FORMAT!r}. Name another folder.")
    if document.get("version") != _VERSION:
        raise UnsupportedError(
            f"{path}: version {document.get('version')!r} of the format; this build reads {_VERSION}. Update headstart."
        )
    source, settings, categories = (document.get(key) for key in ("source", "settings", "categories"))
    try:
        if not isinstance(settings, dict) or not isinstance(categories, list) or not isinstance(source, dict):
            raise TypeError("source, settings or categories are not of their types")
        header = TextHeader(source=TextSource(**source), settings=settings, categories=tuple(map(str, categories)))
        return header, int(document["counts"]["num_asked"])
    except (TypeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: the header is malformed ({error}). Copy the store anew.") from error


def _find_shards(path: Path) -> list[Path]:
    numbers = [int(match[1]) for file in path.iterdir() if (match := _SHARD_NAME.fullmatch(file.name))]
    shards = [_shard_path(path, number) for number in range(len(numbers))]
    for shard in shards:
        if not shard.exists():
            raise CheckpointError(
                f"{shard} is missing, though there are shards up to {max(numbers):05d}. Copy it anew, or delete those "
                "after it and write on; the same documents come again."
            )
    return shards


def _shard_path(path: Path, number: int) -> Path:
    return path / f"shard-{number:05d}.safetensors"
