"""Documents into windows of one length, several to a window.

Packing is best fit, longest first: a function of the documents' lengths alone,
so that a resumed run finds the same windows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.train.text_shard import Document

PADDING = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """A document, or a part of one that is longer than a window, at its place.

    Attributes:
        document: its number in the text.
        start: first token of the part.
        length: tokens.
        window: that it lies in.
        place: where it begins there.
    """

    document: int
    start: int
    length: int
    window: int
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Packed text.

    Attributes:
        tokens: int32 [N, T].
        documents: int32 [N, T], number of the piece within its window, `PADDING` past the last.
        positions: int32 [N, T], position within the piece.
        supervised: bool [N, T].
        pieces: of each window, in the order of their places.
    """

    tokens: NDArray[np.int32]
    documents: NDArray[np.int32]
    positions: NDArray[np.int32]
    supervised: NDArray[np.bool_]
    pieces: tuple[tuple[Piece, ...], ...]

    def __len__(self) -> int:
        return len(self.tokens)


def pack(documents: Sequence[Document], chosen: Iterable[int], window: int) -> Windows:
    """Pack documents.

    Args:
        documents: the text.
        chosen: numbers of those to pack; one without anything to learn from is left out.
        window: tokens of a window, at least 2.

    Raises:
        ConfigError: no document has anything to learn from.
    """
    parts = [
        (number, start, min(window, len(documents[number].tokens) - start))
        for number in chosen
        for start in range(0, len(documents[number].tokens), window)
        if documents[number].supervised[start + 1 : start + window].any()
    ]
    if not parts:
        raise ConfigError("The text has no supervised token to learn from. Look at how it was written.")
    places = _places([length for _, _, length in parts], window)
    pieces: list[list[Piece]] = [[] for _ in range(1 + max(index for index, _ in places))]
    for (number, start, length), (index, place) in zip(parts, places, strict=True):
        pieces[index].append(Piece(number, start, length, index, place))
    shape = (len(pieces), window)
    windows = Windows(
        np.zeros(shape, np.int32), np.full(shape, PADDING, np.int32), np.zeros(shape, np.int32), np.zeros(shape, bool),
        tuple(tuple(sorted(held, key=lambda piece: piece.place)) for held in pieces),
    )  # fmt: skip
    for held in windows.pieces:
        for number_within, piece in enumerate(held):
            inside = slice(piece.place, piece.place + piece.length)
            source = slice(piece.start, piece.start + piece.length)
            windows.tokens[piece.window, inside] = documents[piece.document].tokens[source]
            windows.supervised[piece.window, inside] = documents[piece.document].supervised[source]
            windows.documents[piece.window, inside] = number_within
            windows.positions[piece.window, inside] = np.arange(piece.length)
    return windows


def _places(lengths: Sequence[int], window: int) -> list[tuple[int, int]]:
    """For each piece its window, and where it begins there."""
    places = [(0, 0)] * len(lengths)
    used: list[int] = []  # tokens of each window
    room: list[tuple[int, int]] = []  # (tokens left, window), ascending
    for piece in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        fit = bisect_left(room, (lengths[piece], -1))
        if fit < len(room):
            _, index = room.pop(fit)
        else:
            index = len(used)
            used.append(0)
        places[piece] = (index, used[index])
        used[index] += lengths[piece]
        insort(room, (window - used[index], index))
    return places
