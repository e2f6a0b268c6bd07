"""A drafter that looks up what followed the same words before."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.decoding.drafter import DraftRequest
from headstart.records import EMPTY_TREE, SamplingParams, Tree


class LookupDrafter:
    """Proposes what followed the longest earlier match of the text's end.

    Args:
        min_match: tokens that must match at least, at least 1.
        remember: look in earlier outputs of this engine too.
        max_remembered_tokens: bound on those outputs, in tokens.
    """

    name = "lookup"

    def __init__(self, *, min_match: int = 2, remember: bool = False, max_remembered_tokens: int = 100_000) -> None:
        self.min_match = min_match
        self.remember = remember
        self.max_remembered_tokens = max_remembered_tokens

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> object:
        """Begin a sequence: index its prompt."""
        return object()

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Index tokens that became final."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """One tree a request; empty where nothing long enough matches."""
        return [EMPTY_TREE for _ in requests]

    def close(self, state: object) -> None:
        """Forget a sequence, or remember its output."""
