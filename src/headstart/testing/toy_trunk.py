"""A model of a few lines whose every logit depends on everything it should see.

`ToyTrunk` stores a digest of each row in its cache slot and reads the slots
back through the page tables, as attention does. A row's digest is a hash of its
token, its position and the digests of all it sees. A stale row, a wrong page, a
missed move or a position off by one therefore changes the logits from there on,
and soon the tokens; nothing cancels out.

Its texts are a little predictable: the two newest tokens weigh most, so they
repeat themselves and a lookup in the text is sometimes right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.decoding.law import ReferenceChooser
from headstart.errors import CapacityError
from headstart.records import SamplingParams, TokenLogprobs
from headstart.runtime.protocol import PAGE_TOKENS, Choice, Chooser, Rows

_MASK = (1 << 64) - 1


class ToyTrunk:
    """A `headstart.runtime.protocol.Trunk` in numpy, fast enough for thousands of tests."""

    def __init__(
        self, vocab_size: int = 48, *, max_context: int = 512, seed: int = 0, context_weight: float = 1.0
    ) -> None:
        """Make a model without weights.

        Args:
            vocab_size: ids it knows.
            max_context: positions it can run.
            seed: another seed is another model.
            context_weight: share of the whole context in the logits, against 3.0
                for the two newest tokens; 0 makes a text that soon repeats itself.
        """
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.num_forward_rows = 0
        self.num_passes = 0
        self._seed = _mix(seed + 1)
        self._context_weight = context_weight
        self._vocabulary = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._slot_digests = np.zeros(0, dtype=np.uint64)
        self._slot_tokens = np.zeros(0, dtype=np.int64)
        self._slot_positions = np.zeros(0, dtype=np.int64)
        self._logits: list[NDArray[np.float32]] = []

    def make_cache(self, num_pages: int) -> None:
        """Allocate slots; they begin with content that must never be seen."""
        size = num_pages * PAGE_TOKENS
        self._slot_digests = np.arange(7, 7 + size, dtype=np.uint64)
        self._slot_tokens = np.zeros(size, dtype=np.int64)
        self._slot_positions = np.zeros(size, dtype=np.int64)

    def page_bytes(self) -> int:
        """Bytes of one page."""
        return 24 * PAGE_TOKENS

    def forward(self, rows: Rows) -> None:
        """Run rows: a digest into each slot, logits for the wanted ones."""
        self._check(rows)
        wanted = set(rows.wanted.tolist())
        rank = 0  # of a row among its sequence's
        visible_of_row: list[NDArray[np.int64]] = []
        self._logits = []
        for row, (token, position, parent, sequence) in enumerate(
            zip(
                rows.tokens.tolist(),
                rows.positions.tolist(),
                rows.parents.tolist(),
                rows.sequences.tolist(),
                strict=True,
            )
        ):
            rank = rank + 1 if row and rows.sequences[row - 1] == sequence else 0
            table = rows.page_tables[sequence]
            committed = int(rows.committed[sequence])
            logical = committed + rank
            slot = int(table[logical // PAGE_TOKENS]) * PAGE_TOKENS + logical % PAGE_TOKENS
            before = visible_of_row[parent] if parent >= 0 else _committed_slots(table, committed)
            visible = np.append(before, slot)
            seen = int(self._slot_digests[before].sum(dtype=np.uint64))
            self._slot_digests[slot] = _mix(_mix(token + 1) ^ _mix(_mix(position + 1) ^ seen))
            self._slot_tokens[slot] = token
            self._slot_positions[slot] = position
            visible_of_row.append(visible)
            if row in wanted:
                self._logits.append(self._row_logits(visible))
        self.num_forward_rows += len(rows.tokens)
        self.num_passes += 1

    def logits(self, wanted_index: int) -> NDArray[np.float32]:
        """The logits [V] of one wanted row."""
        return self._logits[wanted_index].copy()

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The reference law."""
        return ReferenceChooser(params, seed, prompt, end_tokens, self.vocab_size)

    def choose(self, choices: Sequence[Choice]) -> tuple[list[int], list[TokenLogprobs | None]]:
        """The law's token at each row."""
        tokens: list[int] = []
        logprobs: list[TokenLogprobs | None] = []
        for choice in choices:
            assert isinstance(choice.chooser, ReferenceChooser)
            token, entry = choice.chooser.choose(self._logits[choice.row], choice.position, choice.path)
            tokens.append(token)
            logprobs.append(entry)
        return tokens, logprobs

    def move(self, page_table: NDArray[np.int32], sources: Sequence[int], destinations: Sequence[int]) -> None:
        """Copy slots to slots, as if all at once."""
        source_slots, destination_slots = _slots(page_table, sources), _slots(page_table, destinations)
        for content in (self._slot_digests, self._slot_tokens, self._slot_positions):
            content[destination_slots] = content[source_slots]

    def slot(self, page_table: NDArray[np.int32], logical: int) -> tuple[int, int, int]:
        """What lies in a slot of a sequence: token, position, and digest of all that the row saw."""
        slot = int(page_table[logical // PAGE_TOKENS]) * PAGE_TOKENS + logical % PAGE_TOKENS
        return int(self._slot_tokens[slot]), int(self._slot_positions[slot]), int(self._slot_digests[slot])

    def near_logits(self, newest_tokens: Sequence[int]) -> NDArray[np.float32]:
        """The part of the logits that the two newest tokens make up: what a good guess is made by."""
        near = self._seed
        for token in newest_tokens[-2:]:
            near = _mix(near ^ _mix(token + 1))
        return (3.0 * self._noise(near)).astype(np.float32)

    def _row_logits(self, visible: NDArray[np.int64]) -> NDArray[np.float32]:
        newest = visible[np.argsort(self._slot_positions[visible], kind="stable")[-2:]]
        whole = _mix(self._seed ^ int(self._slot_digests[visible].sum(dtype=np.uint64)))
        far = self._context_weight * self._noise(whole)
        return (self.near_logits(self._slot_tokens[newest].tolist()) + far).astype(np.float32)

    def _noise(self, key: int) -> NDArray[np.float64]:
        """Fixed numbers in [-1, 1) for a key, one a token id."""
        with np.errstate(over="ignore"):
            bits = (self._vocabulary ^ np.uint64(key)) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        return (bits >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0

    def _check(self, rows: Rows) -> None:
        """Hold the caller to what `Rows` promises."""
        count = len(rows.tokens)
        if count == 0 or not 0 <= int(rows.positions.min()) <= int(rows.positions.max()) < self.max_context:
            raise CapacityError(f"{count} rows at positions {rows.positions}: the context is {self.max_context}.")
        assert 0 <= rows.tokens.min() <= rows.tokens.max() < self.vocab_size
        assert (np.diff(rows.wanted) > 0).all()
        assert (np.diff(rows.sequences) >= 0).all()
        assert (rows.parents < np.arange(count)).all()
        inside = rows.parents >= 0
        assert (rows.sequences[rows.parents[inside]] == rows.sequences[inside]).all()
        num_rows = np.bincount(rows.sequences, minlength=len(rows.page_tables))
        for table, committed, own in zip(rows.page_tables, rows.committed, num_rows, strict=True):
            assert committed + own <= len(table) * PAGE_TOKENS


def _committed_slots(table: NDArray[np.int32], committed: int) -> NDArray[np.int64]:
    slots = table.astype(np.int64)[:, None] * PAGE_TOKENS + np.arange(PAGE_TOKENS)
    return slots.reshape(-1)[:committed]


def _slots(table: NDArray[np.int32], logical: Sequence[int]) -> NDArray[np.int64]:
    index = np.asarray(logical, dtype=np.int64)
    return table[index // PAGE_TOKENS].astype(np.int64) * PAGE_TOKENS + index % PAGE_TOKENS


def _mix(value: int) -> int:
    """A 64-bit finaliser: every input bit reaches every output bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
