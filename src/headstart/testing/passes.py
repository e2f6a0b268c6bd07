"""Single passes over a trunk, for tests that look at logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.engine.cache import num_pages_for
from headstart.runtime.protocol import Rows, Trunk


def rows_of_one(
    tokens: Sequence[int],
    *,
    committed: int = 0,
    parents: Sequence[int] | None = None,
    page_table: Sequence[int] | None = None,
    wanted: Sequence[int] | None = None,
) -> Rows:
    """Rows of one sequence: a chain after its committed tokens, or a tree given by `parents`.

    Args:
        tokens: token of each row.
        committed: tokens that the cache holds already.
        parents: as in `Rows.parents`; a chain unless given.
        page_table: as many of the cache's first pages as needed unless given.
        wanted: rows whose logits are wanted; all unless given.
    """
    num_rows = len(tokens)
    parents = list(range(-1, num_rows - 1)) if parents is None else parents
    positions: list[int] = []
    for parent in parents:
        positions.append(committed if parent < 0 else positions[parent] + 1)
    if page_table is None:
        page_table = range(num_pages_for(committed + num_rows))
    return Rows(
        tokens=np.asarray(tokens, np.int32),
        positions=np.asarray(positions, np.int32),
        parents=np.asarray(parents, np.int32),
        sequences=np.zeros(num_rows, np.int32),
        page_tables=[np.asarray(page_table, np.int32)],
        committed=np.asarray([committed], np.int32),
        wanted=np.arange(num_rows, dtype=np.int32) if wanted is None else np.asarray(wanted, np.int32),
    )


def side_by_side(*parts: Rows) -> Rows:
    """One pass over the rows of several; each part keeps its sequences, and their page tables must not overlap."""
    first_row = np.cumsum([0, *(len(part.tokens) for part in parts)])
    first_sequence = np.cumsum([0, *(len(part.page_tables) for part in parts)])

    def joined(arrays: Iterable[NDArray[np.int32]]) -> NDArray[np.int32]:
        return np.concatenate(list(arrays)).astype(np.int32)

    return Rows(
        tokens=joined(part.tokens for part in parts),
        positions=joined(part.positions for part in parts),
        parents=joined(
            np.where(part.parents < 0, -1, part.parents + base) for part, base in zip(parts, first_row, strict=False)
        ),
        sequences=joined(part.sequences + base for part, base in zip(parts, first_sequence, strict=False)),
        page_tables=[table for part in parts for table in part.page_tables],
        committed=joined(part.committed for part in parts),
        wanted=joined(part.wanted + base for part, base in zip(parts, first_row, strict=False)),
    )


def wanted_logits(trunk: Trunk, rows: Rows) -> NDArray[np.float32]:
    """Run the rows; the wanted logits [W, V]."""
    trunk.forward(rows)
    return np.stack([trunk.logits(index) for index in range(len(rows.wanted))])


def prefill_logits(trunk: Trunk, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits [T, V] of a fresh sequence in one pass; makes a cache of its size."""
    trunk.make_cache(num_pages_for(len(tokens)))
    return wanted_logits(trunk, rows_of_one(tokens))
