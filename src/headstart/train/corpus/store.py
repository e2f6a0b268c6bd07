"""A prepared corpus, mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TokenStore:
    """The documents of one split, in an order that content and seed decide.

    Attributes:
        num_documents: documents.
        num_tokens: their tokens, the end-of-text tokens included.
        num_bytes: UTF-8 bytes of their text; what bits per byte are of.
    """

    num_documents: int
    num_tokens: int
    num_bytes: int

    def document(self, index: int) -> NDArray[Any]:
        """The tokens of a document, uint16 or uint32 [length], the end-of-text token last; a view of the file."""
        raise NotImplementedError

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every document, int64 [num_documents]."""
        raise NotImplementedError


class Corpus:
    """A prepared corpus.

    Attributes:
        path: its folder.
        tokenizer_folder: holds tokenizer.json and tokenizer_config.json.
        vocab_size: one more than the highest token id.
        end_id: the token that ends every document.
        train: documents to learn from.
        validation: documents that are never learnt from.
        digest: of tokens, order and tokenizer, 32 hexadecimal digits.
        token_bytes: int64 [vocab_size], bytes of text that each token stands for; 0 for special ones. The bytes of
            validation windows, for bits per byte, are `token_bytes[targets].sum()`.
    """

    path: Path
    tokenizer_folder: Path
    vocab_size: int
    end_id: int
    train: TokenStore
    validation: TokenStore
    digest: str
    token_bytes: NDArray[np.int64]


def open_corpus(path: str | Path, *, verify: bool = True) -> Corpus:
    """Open a prepared corpus.

    Args:
        path: its folder.
        verify: read every shard once to check its digest (about a second for a gigabyte); sizes are checked always.

    Raises:
        CheckpointError: there is none, its preparation did not finish, or a file is missing, damaged or foreign.
        UnsupportedError: a later version of the format.
    """
    raise NotImplementedError
