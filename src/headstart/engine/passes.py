"""From rounds to the rows of one trunk pass.

The rows of a round stand in slot order: pending tokens first, then drafted
nodes in the order of their tree.

    slot      committed ...          committed + num_tokens ...
              |-- pending tokens --|-- node 0 | node 1 | ... --|
    position  = slot                 root's position + depth
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headstart.engine.scheduler import Round
from headstart.runtime.protocol import Choice, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One trunk pass.

    Attributes:
        rows: what runs.
        rounds: whose rows they are, in order.
        choices: for each round that reaches its root, one choice after the root
            and one after each node; none for a round that does not.
    """

    rows: Rows
    rounds: Sequence[Round]
    choices: Sequence[Sequence[Choice]]


def build_pass(rounds: Sequence[Round]) -> Pass:
    """Lay out the rows of `rounds`, whose pages are reserved."""
    tokens: list[int] = []
    positions: list[int] = []
    parents: list[int] = []
    sequences: list[int] = []
    committed: list[int] = []
    wanted: list[int] = []
    choices: list[list[Choice]] = []
    page_tables = []
    for index, round_ in enumerate(rounds):
        sequence, tree = round_.sequence, round_.tree
        assert sequence.pages is not None
        first_row, first_slot = len(tokens), sequence.pages.committed
        end_slot = first_slot + round_.num_tokens
        page_tables.append(sequence.pages.array)
        committed.append(first_slot)
        tokens += sequence.tokens[first_slot:end_slot]
        positions += range(first_slot, end_slot)
        parents += (-1, *range(first_row, first_row + round_.num_tokens - 1))
        own_choices: list[Choice] = []
        if round_.reaches_root:
            root_row = len(tokens) - 1
            own_choices.append(Choice(len(wanted), sequence.chooser, end_slot, ()))
            wanted.append(root_row)
            for token, parent in zip(tree.tokens, tree.parents, strict=True):
                # entry 0 of `own_choices` is the root's, entry i + 1 node i's
                before = own_choices[parent + 1]
                own_choices.append(Choice(len(wanted), sequence.chooser, before.position + 1, (*before.path, token)))
                wanted.append(len(tokens))
                parents.append(root_row + 1 + parent)
                positions.append(before.position)
                tokens.append(token)
        choices.append(own_choices)
        sequences += [index] * (len(tokens) - first_row)
    rows = Rows(
        tokens=np.array(tokens, dtype=np.int32),
        positions=np.array(positions, dtype=np.int32),
        parents=np.array(parents, dtype=np.int32),
        sequences=np.array(sequences, dtype=np.int32),
        page_tables=page_tables,
        committed=np.array(committed, dtype=np.int32),
        wanted=np.array(wanted, dtype=np.int32),
    )
    return Pass(rows, rounds, choices)
