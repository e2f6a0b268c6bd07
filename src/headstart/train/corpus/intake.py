"""What becomes of a document: dropped, learnt from, or held out. Its content alone decides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.train.corpus.header import SourceCounts
from headstart.train.corpus.sources import Source

_WHOLE = 1 << 64


@dataclass(frozen=True, slots=True)
class Text:
    """A document that was taken in.

    Attributes:
        source: number of its source.
        split: the side it is on.
        text: its content.
        num_bytes: of the text in UTF-8.
        digest: of its content, 16 bytes.
    """

    source: int
    split: Literal["train", "validation"]
    text: str
    num_bytes: int
    digest: bytes

    def order_key(self, seed: int) -> int:
        """64 bits that order documents as if shuffled, wherever they came from."""
        return _number(hashlib.blake2b(self.digest, key=seed.to_bytes(8, "little"), digest_size=8).digest())


def take_in(
    sources: Sequence[Source], validation_share: float, counts: Sequence[SourceCounts] | None = None
) -> Iterator[Text]:
    """The documents of sources, one after another, each text once.

    The digest of a text says on which side it is: other documents, their order and the seed do not matter, so that
    what was held out once is held out in every corpus with the same share. 16 bytes of each text are remembered.

    Args:
        sources: to read.
        validation_share: share of documents to hold out, 0 to 1.
        counts: one for each source, where what is dropped is counted.
    """
    seen: set[bytes] = set()
    held_out = round(validation_share * _WHOLE)
    for number, source in enumerate(sources):
        count = counts[number] if counts is not None else SourceCounts(name=source.name)
        for content in source.documents():
            if not content.strip():
                count.empty += 1
                continue
            digest = hashlib.blake2b(content, digest_size=16).digest()
            if digest in seen:
                count.duplicates += 1
                continue
            seen.add(digest)
            try:
                text = content.decode()
            except UnicodeDecodeError:
                count.undecodable += 1
                continue
            split: Literal["train", "validation"] = "validation" if _number(digest[:8]) < held_out else "train"
            yield Text(number, split, text, len(content), digest)


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
