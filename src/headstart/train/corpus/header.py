"""corpus.json: what a prepared corpus is, and how its files prove themselves whole.

The header is written when all else is in place, so a folder with one is a whole corpus.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headstart.checkpoint.json_files import read_json_object
from headstart.errors import CheckpointError, UnsupportedError
from headstart.train.whole_files import write_whole

HEADER_NAME = "corpus.json"
MARK_NAME = "preparing.json"
TOKENIZER_NAME = "tokenizer"
SPLITS = ("train", "validation")

_FORMAT = "headstart-corpus"
_VERSION = 1


@dataclass(slots=True)
class SplitCounts:
    """Documents of a source on one side.

    Attributes:
        documents: how many.
        tokens: of them, end-of-text tokens included.
        bytes: of their text, in UTF-8.
    """

    documents: int = 0
    tokens: int = 0
    bytes: int = 0


@dataclass(slots=True, kw_only=True)
class SourceCounts:
    """What became of a source's documents.

    Attributes:
        name: as it was asked for, or a part of that.
        about: what it is here, such as a version.
        train: documents to learn from.
        validation: documents that are never learnt from.
        duplicates: dropped, as the same text had come before, from this source or another.
        empty: dropped, as they hold nothing but white space.
        undecodable: dropped, as they are not UTF-8.
    """

    name: str
    about: str = ""
    train: SplitCounts = field(default_factory=SplitCounts)
    validation: SplitCounts = field(default_factory=SplitCounts)
    duplicates: int = 0
    empty: int = 0
    undecodable: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """One file of tokens.

    Attributes:
        tokens: how many it holds.
        digest: of its bytes, 32 hexadecimal digits.
    """

    tokens: int
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRecord:
    """One split's files.

    Attributes:
        documents: rows of the index.
        tokens: of all shards.
        bytes: of text.
        index_digest: of the index's bytes.
        shards: in order.
    """

    documents: int
    tokens: int
    bytes: int
    index_digest: str
    shards: tuple[ShardRecord, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusHeader:
    """The contents of corpus.json.

    Attributes:
        settings: what was asked for, as JSON holds it.
        versions: of the programs that prepared it.
        dtype: of tokens, "<u2" or "<u4".
        vocab_size: one more than the highest token id.
        end_id: the token that ends every document.
        tokenizer_digest: of the tokenizer, see `Tokenizer.digest`.
        splits: by name, train and validation.
        sources: what became of each source's documents.
    """

    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    dtype: str
    vocab_size: int
    end_id: int
    tokenizer_digest: str
    splits: Mapping[str, SplitRecord]
    sources: tuple[SourceCounts, ...]

    def digest(self) -> str:
        """A fingerprint of tokens, their order and the tokenizer, 32 hexadecimal digits."""
        content = (
            self.dtype, self.vocab_size, self.end_id, self.tokenizer_digest,
            [(name, asdict(self.splits[name])) for name in SPLITS],
        )  # fmt: skip
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def write_header(folder: Path, header: CorpusHeader) -> None:
    """Make a folder whose other files are in place a corpus."""
    document = {"format": _FORMAT, "version": _VERSION, "digest": header.digest(), **asdict(header)}
    write_whole(folder / HEADER_NAME, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def read_header(folder: Path) -> CorpusHeader:
    """Read a corpus' header.

    Raises:
        CheckpointError: there is none, or it is malformed or altered.
        UnsupportedError: a later version of the format.
    """
    path = folder / HEADER_NAME
    if not path.is_file():
        if (folder / MARK_NAME).is_file():
            raise CheckpointError(
                f"{folder}: the preparation of this corpus has not finished. Give the same command again."
            )
        raise CheckpointError(
            f"{folder}: no corpus, as there is no {HEADER_NAME}. Name another folder, or prepare one: "
            "headstart data FOLDER --source ..."
        )
    document = read_json_object(path)
    if document.pop("format", None) != _FORMAT:
        raise CheckpointError(f"{path}: this is not the header of a corpus. Name another folder.")
    version, digest = document.pop("version", None), document.pop("digest", None)
    if version != _VERSION:
        raise UnsupportedError(
            f"{path}: version {version!r} of the format; this build reads {_VERSION}. Update headstart."
        )
    try:
        header = _from_json(document)
        sound = header.dtype in ("<u2", "<u4") and header.digest() == digest
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path}: the header is malformed ({error!r}). Copy the corpus anew.") from error
    if not sound:
        raise CheckpointError(
            f"{path}: the header was altered, as its digest is another. Copy the corpus anew, or prepare it again."
        )
    return header


def _from_json(document: dict[str, Any]) -> CorpusHeader:
    splits = {
        name: SplitRecord(**{**record, "shards": tuple(ShardRecord(**shard) for shard in record["shards"])})
        for name, record in document.pop("splits").items()
    }
    sources = tuple(
        SourceCounts(**{**source, **{name: SplitCounts(**source[name]) for name in SPLITS}})
        for source in document.pop("sources")
    )
    return CorpusHeader(splits=splits, sources=sources, **document)
