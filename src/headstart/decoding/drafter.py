"""What a drafter is: anything that guesses the tokens to come.

A drafter keeps a state for each sequence. It is told each token that became
final, in order, and may be asked at any time what could follow the last one.
It is never trusted: a wrong guess costs a row, never a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from headstart.records import SamplingParams, Tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Draws = Literal["nothing", "chains", "trees"]
"""What a drafter draws by lot and gives with `Tree.distributions`. How many nodes it draws is settled before."""


@dataclass(frozen=True, slots=True, eq=False)
class TrunkSlots:
    """Where the trunk keeps a sequence, for a drafter that reads there and stores beside it.

    Attributes:
        page_table: int32 [pages], page numbers in slot order, that of the root's slot among them.
        stamps: a number for each page. A page that was given back comes with another one when it is taken
            again; so what was stored under a page is there as long as the stamp is the same.
        committed: tokens, from the first, that the trunk has run.
    """

    page_table: NDArray[np.int32]
    stamps: Sequence[int]
    committed: int


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One sequence's wish for a tree.

    Attributes:
        state: what `Drafter.open` returned for it.
        max_nodes: nodes at most, at least 1.
        max_depth: depth at most, at least 1.
        min_path_probability: nodes that the drafter thinks less likely than this
            cannot pay; it may leave them out, but for its best one, by which it
            is judged.
        min_parent_probability: nodes that the drafter thinks less likely than
            this need no children: what those can bring does not pay for a
            further depth.
        trunk_slots: where the trunk keeps the sequence; valid during the call.
        min_confidence: as `min_parent_probability`, but because the user wants it so, whatever a further depth costs.
    """

    state: object
    max_nodes: int
    max_depth: int
    min_path_probability: float = 0.0
    min_parent_probability: float = 0.0
    trunk_slots: TrunkSlots | None = None
    min_confidence: float = 0.0


class Drafter(Protocol):
    """Proposes trees for many sequences at once.

    One that draws its guesses says so in an attribute `draws` (`Draws`); without
    it, nothing is taken to be drawn. One that has to read a text before it can
    guess tells in a method `backlog(state, trunk_slots)` how many tokens it has
    missed, those that it was told last not counted; without it, none.
    """

    name: str

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> object:
        """Begin a sequence; returns its state, `None` if it cannot serve it. `seed` allows coupled drafting."""

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Tell the tokens that became final, the next round's root included."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """One tree a request, possibly empty, of what follows the last token told.

        Path probabilities are the drafter's own; the policy calibrates them.
        """

    def close(self, state: object) -> None:
        """Forget a sequence."""
