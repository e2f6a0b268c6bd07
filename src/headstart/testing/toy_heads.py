"""Heads for the toy trunk, which prove at every call that whoever drives them keeps the books right.

A row remembers its token and what the trunk kept of the token before it. When
guesses are wanted, every row of the text has to be there, and to have been made
of what the trunk keeps now: a page that was given back and taken by another
sequence, a row left out, or one run too early is an error, not a bad guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.decoding.law import ReferenceChooser
from headstart.decoding.trees import prune
from headstart.records import EMPTY_TREE, Tree
from headstart.runtime.heads_protocol import HeadsRequest
from headstart.runtime.protocol import PAGE_TOKENS
from headstart.testing.toy_trunk import ToyTrunk

# of one place: the one that the law would choose, and other ones beside it
NUM_GUESSES = 3


class ToyHeads:
    """`headstart.runtime.heads_protocol.Heads` that guess by the two newest tokens, and so are often right.

    Attributes:
        max_depth: that they can guess to.
        follows_text, recurrent: yes.
        calls: the requests of each call.
    """

    def __init__(self, trunk: ToyTrunk, *, max_depth: int = 5) -> None:
        """Sit on `trunk`."""
        self.max_depth, self.follows_text, self.recurrent = max_depth, True, True
        self.calls: list[Sequence[HeadsRequest]] = []
        self._trunk = trunk
        self._rows: dict[int, tuple[int, int, int]] = {}  # slot of the cache -> position, token, state before it

    @property
    def num_text_rows(self) -> int:
        """Rows that were run for tokens of texts."""
        return sum(len(request.tokens) for call in self.calls for request in call)

    def page_bytes(self) -> int:
        """Bytes of one page."""
        return 24 * PAGE_TOKENS

    def draft_bytes(self, depth: int) -> int:
        """They have no weights."""
        return 0

    def draft(self, requests: Sequence[HeadsRequest]) -> list[Tree]:
        """Run the rows, prove that all are there, and guess.

        Raises:
            AssertionError: a row is missing, was made of something else, or cannot be run yet.
        """
        self.calls.append(requests)
        for request in requests:
            self._run(request)
        return [self._guess(request) if request.max_nodes else EMPTY_TREE for request in requests]

    def _run(self, request: HeadsRequest) -> None:
        assert request.tokens.dtype == request.page_table.dtype == np.int32
        assert len(request.tokens) >= 1
        for position, token in enumerate(request.tokens.tolist(), start=request.first):
            self._rows[_slot(request.page_table, position)] = (position, token, self._state(request, position))

    def _state(self, request: HeadsRequest, position: int) -> int:
        """What the trunk keeps of the token before."""
        if position == 0:
            return 0
        _, trunk_position, digest = self._trunk.slot(request.page_table, position - 1)
        assert trunk_position == position - 1, f"the trunk has not run position {position - 1}"
        return digest

    def _guess(self, request: HeadsRequest) -> Tree:
        root = request.first + len(request.tokens) - 1
        for position in range(root + 1):
            row = self._rows.get(_slot(request.page_table, position))
            assert row is not None, f"no row was run at position {position}"
            # the root has no row in the trunk yet
            token = row[1] if position == root else self._trunk.slot(request.page_table, position)[0]
            assert row == (position, token, self._state(request, position)), f"row {position} is another text's"
        before = [self._trunk.slot(request.page_table, root - 1)[0]] if root else []
        return self._grow(request, [*before, int(request.tokens[-1])], root)

    def _grow(self, request: HeadsRequest, newest: list[int], root: int) -> Tree:
        """Level by level; of each, the likeliest nodes get children."""
        tokens: list[int] = []
        parents: list[int] = []
        path_probabilities: list[float] = []
        paths: dict[int, tuple[int, ...]] = {-1: ()}
        level = [-1]
        least = max(request.min_path_probability, request.min_parent_probability)
        for depth in range(1, min(request.max_depth, self.max_depth) + 1):
            found: list[int] = []
            for parent in level:
                path = paths[parent]
                reached = path_probabilities[parent] if parent >= 0 else 1.0
                logits = self._trunk.near_logits([*newest, *path])
                for token, probability in _likeliest(logits, request, root + depth, path):
                    found.append(len(tokens))
                    paths[len(tokens)] = (*path, token)
                    tokens.append(token)
                    parents.append(parent)
                    path_probabilities.append(reached * probability)
            likely = [node for node in found if path_probabilities[node] >= least]
            level = sorted(likely, key=lambda node: -path_probabilities[node])[: request.breadth]
        num_likely = sum(probability >= request.min_path_probability for probability in path_probabilities)
        tree = Tree(tuple(tokens), tuple(parents), tuple(path_probabilities))
        return prune(tree, min(max(num_likely, 1), request.max_nodes))


def _likeliest(
    logits: NDArray[np.float32], request: HeadsRequest, position: int, path: tuple[int, ...]
) -> list[tuple[int, float]]:
    """Tokens with their probabilities: what the law would choose, then the likeliest others."""
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    probabilities = weights / weights.sum()
    likeliest = [int(token) for token in np.argsort(-logits, kind="stable")[:NUM_GUESSES]]
    if request.chooser is None:
        return [(token, float(probabilities[token])) for token in likeliest]
    assert isinstance(request.chooser, ReferenceChooser)
    choice, _ = request.chooser.choose(logits, position, path)
    others = [token for token in likeliest if token != choice][: NUM_GUESSES - 1]
    return [(choice, 0.6), *((token, 0.4 * float(probabilities[token])) for token in others)]


def _slot(page_table: NDArray[np.int32], position: int) -> int:
    return int(page_table[position // PAGE_TOKENS]) * PAGE_TOKENS + position % PAGE_TOKENS
