"""A prepared corpus, mapped into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import CheckpointError
from headstart.train.corpus.header import TOKENIZER_NAME, CorpusHeader, SplitRecord, read_header
from headstart.train.corpus.shards import index_path, map_index, map_shard, shard_path
from headstart.train.corpus.vocabulary import read_tokenizer


class TokenStore:
    """The documents of one split, in an order that content and seed decide.

    Attributes:
        num_documents: documents.
        num_tokens: their tokens, the end-of-text tokens included.
        num_bytes: UTF-8 bytes of their text; what bits per byte are of.
    """

    def __init__(self, shards: Sequence[NDArray[Any]], index: NDArray[np.int64], num_bytes: int) -> None:
        """See `open_corpus`, which makes these.

        Args:
            shards: tokens, whole documents in each.
            index: int64 [num_documents, 2], begin counted over all shards, and length.
            num_bytes: of text.
        """
        self._shards = tuple(shards)
        self._bounds = np.cumsum([0, *(len(shard) for shard in shards)])
        self._index = index
        self.num_documents = len(index)
        self.num_tokens = int(self._bounds[-1])
        self.num_bytes = num_bytes

    def document(self, index: int) -> NDArray[Any]:
        """The tokens of a document, uint16 or uint32 [length], the end-of-text token last; a view of the file.

        Args:
            index: at least 0 and below `num_documents`.
        """
        if not 0 <= index < self.num_documents:
            raise IndexError(f"document {index} of {self.num_documents}")
        begin, length = self._index[index].tolist()
        shard = int(np.searchsorted(self._bounds, begin, side="right")) - 1
        begin -= int(self._bounds[shard])
        return self._shards[shard][begin : begin + length]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every document, int64 [num_documents]."""
        return self._index[:, 1]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Corpus:
    """A prepared corpus.

    Attributes:
        path: its folder.
        header: what was prepared, with counts by source.
        tokenizer_folder: holds tokenizer.json and tokenizer_config.json.
        train: documents to learn from.
        validation: documents that are never learnt from.
        token_bytes: int64 [vocab_size], bytes of text that each token stands for; 0 for special ones. The bytes of
            validation windows, for bits per byte, are `token_bytes[targets].sum()`.
    """

    path: Path
    header: CorpusHeader
    tokenizer_folder: Path
    train: TokenStore
    validation: TokenStore
    token_bytes: NDArray[np.int64]

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return self.header.vocab_size

    @property
    def end_id(self) -> int:
        """The token that ends every document."""
        return self.header.end_id

    @property
    def digest(self) -> str:
        """A fingerprint of tokens, their order and the tokenizer, 32 hexadecimal digits."""
        return self.header.digest()


def open_corpus(path: str | Path, *, verify: bool = True) -> Corpus:
    """Open a prepared corpus.

    Args:
        path: its folder.
        verify: read every shard once to check its digest (about a second for a gigabyte); sizes are checked always.

    Raises:
        CheckpointError: there is none, its preparation did not finish, or a file is missing, damaged or foreign.
        UnsupportedError: a later version of the format.
    """
    path = Path(path)
    header = read_header(path)
    folder = path / TOKENIZER_NAME
    tokenizer = read_tokenizer(folder)
    found = tokenizer.digest()
    if found != header.tokenizer_digest:
        raise CheckpointError(
            f"{folder}: this is not the tokenizer that the corpus was prepared with (its digest is {found}, the "
            f"header says {header.tokenizer_digest}). Put the right one back, or prepare the corpus again."
        )
    dtype = np.dtype(header.dtype)
    train, validation = (
        _open_split(path, name, header.splits[name], dtype, verify=verify) for name in ("train", "validation")
    )
    token_bytes = [
        0 if tokenizer.is_special(token_id) else len(tokenizer.token_bytes(token_id))
        for token_id in range(header.vocab_size)
    ]
    return Corpus(
        path=path, header=header, tokenizer_folder=folder, train=train, validation=validation,
        token_bytes=np.array(token_bytes, np.int64),
    )  # fmt: skip


def _open_split(path: Path, name: str, record: SplitRecord, dtype: np.dtype[Any], *, verify: bool) -> TokenStore:
    shards = [
        map_shard(shard_path(path, name, number), shard, dtype, verify=verify)
        for number, shard in enumerate(record.shards)
    ]
    return TokenStore(shards, map_index(index_path(path, name), record), record.bytes)
