"""Packing: every token that can be learnt lies in exactly one window, as it stood in its document."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.errors import ConfigError
from headstart.train.packing import PADDING, Windows, pack
from headstart.train.text_shard import Document

WINDOW = 8


def document(marks: list[bool], number: int = 0) -> Document:
    """Of tokens that tell their document and place."""
    tokens = np.arange(len(marks), dtype=np.int32) + 100 * number
    return Document(tokens=tokens, supervised=np.array(marks, bool), temperature=0.0, seed=0, category="test")


texts = st.lists(st.lists(st.booleans(), min_size=1, max_size=21), min_size=1, max_size=12)


def learnable(documents: list[Document], window: int) -> set[tuple[int, int]]:
    """(document, place) of each supervised token that has a token before it in its piece."""
    return {
        (number, place)
        for number, document in enumerate(documents)
        for place, supervised in enumerate(document.supervised)
        if supervised and place % window
    }


def packed_or_none(documents: list[Document], window: int = WINDOW) -> Windows | None:
    if not learnable(documents, window):
        with pytest.raises(ConfigError, match="no supervised token"):
            pack(documents, range(len(documents)), window)
        return None
    return pack(documents, range(len(documents)), window)


@settings(deadline=None, max_examples=60)
@given(texts)
def test_windows_hold_their_pieces_and_nothing_else(marks: list[list[bool]]) -> None:
    documents = [document(each, number) for number, each in enumerate(marks)]
    windows = packed_or_none(documents)
    if windows is None:
        return
    found = set()
    for index, pieces in enumerate(windows.pieces):
        end = 0
        for within, piece in enumerate(pieces):
            assert (piece.window, piece.place) == (index, end)  # side by side, without a gap
            end += piece.length
            inside = slice(piece.place, end)
            source = slice(piece.start, piece.start + piece.length)
            assert windows.tokens[index, inside].tolist() == documents[piece.document].tokens[source].tolist()
            assert windows.supervised[index, inside].tolist() == documents[piece.document].supervised[source].tolist()
            assert windows.documents[index, inside].tolist() == [within] * piece.length
            assert windows.positions[index, inside].tolist() == list(range(piece.length))
            found |= {(piece.document, piece.start + place) for place in range(1, piece.length)}
        assert 0 < end <= WINDOW
        assert windows.documents[index, end:].tolist() == [PADDING] * (WINDOW - end)
        assert not windows.supervised[index, end:].any()
    assert learnable(documents, WINDOW) <= found


@settings(deadline=None, max_examples=60)
@given(texts)
def test_each_piece_lies_in_one_window_and_windows_are_well_filled(marks: list[list[bool]]) -> None:
    documents = [document(each) for each in marks]
    windows = packed_or_none(documents)
    if windows is None:
        return
    pieces = [(piece.document, piece.start) for held in windows.pieces for piece in held]
    assert len(pieces) == len(set(pieces))
    used = sorted(sum(piece.length for piece in held) for held in windows.pieces)
    # two windows that would fit into one would have been one
    assert len(used) == 1 or used[0] + used[1] > WINDOW


def test_it_is_a_function_of_lengths_alone() -> None:
    """Or a run that is resumed would see other windows; tokens must not matter either."""
    lengths = [3, 5, 3, 8, 2, 3, 5, 1 + WINDOW]
    one, other = ([document([True] * length, salt) for length in lengths] for salt in (0, 1))
    assert pack(one, range(8), WINDOW).pieces == pack(other, range(8), WINDOW).pieces


def test_a_document_longer_than_a_window_is_cut_and_its_parts_begin_anew() -> None:
    windows = pack([document([True] * 19)], [0], WINDOW)
    assert sorted((piece.start, piece.length) for held in windows.pieces for piece in held) == [(0, 8), (8, 8), (16, 3)]
    assert sorted(windows.positions.max(axis=1).tolist()) == [2, 7, 7]


def test_what_cannot_be_learnt_is_left_out() -> None:
    """A document without marks, one whose only marked token is its first, and a part of one token."""
    documents = [document([False] * 4), document([True, False]), document([True] * 9), document([False, True])]
    windows = pack(documents, range(4), WINDOW)
    assert sorted((piece.document, piece.start) for held in windows.pieces for piece in held) == [(2, 0), (3, 0)]


def test_only_chosen_documents_are_packed() -> None:
    documents = [document([True] * 3, number) for number in range(5)]
    windows = pack(documents, [3, 1], WINDOW)
    assert sorted(piece.document for held in windows.pieces for piece in held) == [1, 3]
    with pytest.raises(ConfigError, match="no supervised token"):
        pack(documents, [], WINDOW)
