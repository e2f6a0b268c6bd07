"""What the engine asks of heads, whichever runtime runs them.

Heads follow the text beside their trunk: a request names the tokens that they
have not run yet, which they run first. Their cache has the trunk's page
numbers, so who may use which page is settled already. They read what the trunk
kept for the token before each row, so the trunk must have run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.records import Tree
from headstart.runtime.protocol import Chooser


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeadsRequest:
    """One sequence's wish for a tree after its root, or only to be followed.

    Attributes:
        page_table: int32, the sequence's pages in the trunk's cache; they must reach the root's slot.
        first: position of the first token of `tokens`; heads have run all before it.
        tokens: int32, the text's tokens from `first` to the root, the root last. The root's own trunk pass may be
            yet to come.
        chooser: the sequence's law, of the trunk's making: guesses are drawn in step with it. `None`, or a greedy
            law: the likeliest.
        max_nodes: nodes of the tree at most; 0 runs the tokens and guesses nothing.
        max_depth: depth at most, at least 1.
        breadth: rows that one depth may take, 1 to 64.
        min_path_probability: nodes that the heads think less likely than this are left out, but for the best one.
        min_parent_probability: nodes that they think less likely than this get no children.
    """

    page_table: NDArray[np.int32]
    first: int
    tokens: NDArray[np.int32]
    chooser: Chooser | None = None
    max_nodes: int = 0
    max_depth: int = 1
    breadth: int = 1
    min_path_probability: float = 0.0
    min_parent_probability: float = 0.0


class Heads(Protocol):
    """Extra modules of a trunk that guess what follows.

    Attributes:
        max_depth: depths that can be asked for.
        follows_text: whether later guesses read what rows of the text have left. If not, the root's row is enough.
        recurrent: whether deeper guesses see those before them, so that each depth takes a pass.
    """

    max_depth: int
    follows_text: bool
    recurrent: bool

    def page_bytes(self) -> int:
        """Bytes that one page takes in their own cache, beside the trunk's."""

    def draft_bytes(self, depth: int) -> int:
        """Bytes of weights that a tree of `depth` reads, however many rows: over the memory's speed, its least time."""

    def draft(self, requests: Sequence[HeadsRequest]) -> list[Tree]:
        """One tree a request, in one go. A sequence's tree does not depend on the other requests.

        Path probabilities are the heads' own; the policy calibrates them.
        """
