"""What a drafter is: anything that guesses the tokens to come.

A drafter keeps a state for each sequence. It is told each token that became
final, in order, and may be asked at any time what could follow the last one.
It is never trusted: a wrong guess costs a row, never a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from headstart.records import SamplingParams, Tree

Draws = Literal["nothing", "chains", "trees"]
"""What a drafter draws by lot and gives with `Tree.distributions`. How many nodes it draws is settled before."""


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
    """

    state: object
    max_nodes: int
    max_depth: int
    min_path_probability: float = 0.0


class Drafter(Protocol):
    """Proposes trees for many sequences at once.

    One that draws its guesses says so in an attribute `draws` (`Draws`); without
    it, nothing is taken to be drawn.
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
