"""What the engine asks of a runtime, whichever runs the program.

A trunk holds weights and the storage of a paged key/value cache; it owns no
accounts. Who may use which page, and how far a sequence is committed, is
decided by `headstart.engine.cache`.

Cache layout seen from outside: a *page* holds `PAGE_TOKENS` consecutive cache
slots of one sequence. Slot `s` of a sequence lies in page
`page_table[s // PAGE_TOKENS]`. A committed token at position p lies at slot p.
A round writes its rows to the slots after the committed ones, in row order,
which for a tree is not the order of positions; `move` puts kept rows right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.records import SamplingParams, TokenLogprobs

PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of one trunk pass, of any number of sequences.

    Rows of a sequence are adjacent and stand in slot order; a parent stands
    before its children. A row sees the committed tokens of its sequence, its
    ancestors in this pass, and itself.

    Attributes:
        tokens: int32 [R], token ids to run.
        positions: int32 [R], logical position of each token.
        parents: int32 [R], row index (in this pass) of the token before it, or
            -1 if that token is the last committed one (or there is none).
        sequences: int32 [R], index into `page_tables`.
        page_tables: one int32 array of page numbers for each sequence, long
            enough for its committed tokens and its rows.
        committed: int32 [S], number of committed tokens of each sequence.
        wanted: int32 [W], rows whose logits are wanted, ascending.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    parents: NDArray[np.int32]
    sequences: NDArray[np.int32]
    page_tables: Sequence[NDArray[np.int32]]
    committed: NDArray[np.int32]
    wanted: NDArray[np.int32]


class Chooser(Protocol):
    """The sampling law of one sequence, with the counts that penalties need."""

    def extend(self, token_ids: Sequence[int]) -> None:
        """Count tokens that were written (kept ones only)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One row's question: which token follows here?

    Attributes:
        row: index into `Rows.wanted` of the pass just run.
        chooser: the sequence's law.
        position: logical position of the token to be chosen (the row's + 1).
        path: tokens of this round between the last counted token and the row,
            the row's own included if it was not counted yet; they count for
            penalties and `min_tokens` as if they had been written.
    """

    row: int
    chooser: Chooser
    position: int
    path: tuple[int, ...]


class Trunk(Protocol):
    """A model that can run rows and choose tokens."""

    vocab_size: int
    max_context: int

    def make_cache(self, num_pages: int) -> None:
        """Allocate storage for `num_pages` pages; drops what was there.

        Raises:
            CapacityError: the memory is not to be had.
        """

    def page_bytes(self) -> int:
        """Bytes that one page takes over all layers."""

    def forward(self, rows: Rows) -> None:
        """Run rows: write their keys and values, keep the wanted logits.

        A row's logits have the same bits whatever other rows share the call.
        """

    def logits(self, wanted_index: int) -> NDArray[np.float32]:
        """The logits [V] of one wanted row of the last pass (a copy)."""

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The law of a new sequence; `end_tokens` are barred until `min_tokens` were written."""

    def choose(self, choices: Sequence[Choice]) -> tuple[list[int], list[TokenLogprobs | None]]:
        """The trunk's own token at each row, and log-probabilities where asked for."""

    def move(self, page_table: NDArray[np.int32], sources: Sequence[int], destinations: Sequence[int]) -> None:
        """Copy cache rows of a sequence from slots to slots, as if all at once."""
