"""From rounds to the rows of one trunk pass, and from its choices to decisions.

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

from headstart.decoding.verify import verify
from headstart.engine.scheduler import Round
from headstart.records import TokenLogprobs
from headstart.runtime.protocol import Choice, Rows, Trunk


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


@dataclass(frozen=True, slots=True)
class Decision:
    """What the trunk wrote in one round.

    Attributes:
        kept_nodes: accepted nodes, from the root's child down.
        tokens: their tokens and the trunk's own after them; empty for a round
            that did not reach its root.
        logprobs: one entry for each token, or none.
        error: why nothing could be chosen.
    """

    kept_nodes: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    error: Exception | None = None


_NO_DECISION = Decision()


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


def decide(trunk: Trunk, passed: Pass) -> list[Decision]:
    """Let the trunk choose at every wanted row, and keep the drafted nodes that agree.

    A choice that fails is the failure of its own sequence only, and only if
    plain decoding would have met it: one after a node that is not kept does
    not count.
    """
    asked = [choice for own in passed.choices for choice in own]
    if not asked:
        return [_NO_DECISION] * len(passed.rounds)
    try:
        chosen, logprobs = trunk.choose(asked)
    except Exception:
        return [_decide_alone(trunk, round_, own) for round_, own in zip(passed.rounds, passed.choices, strict=True)]
    decisions = []
    start = 0
    for round_, own in zip(passed.rounds, passed.choices, strict=True):
        end = start + len(own)
        decisions.append(_decision(round_, chosen[start:end], logprobs[start:end]) if own else _NO_DECISION)
        start = end
    return decisions


def _decision(round_: Round, chosen: Sequence[int], logprobs: Sequence[TokenLogprobs | None]) -> Decision:
    verdict = verify(round_.tree, chosen)
    kept = verdict.kept_nodes
    tokens = (*(round_.tree.tokens[node] for node in kept), verdict.next_token)
    entries = (logprobs[0], *(logprobs[node + 1] for node in kept))
    return Decision(kept, tokens, tuple(entry for entry in entries if entry is not None))


def _decide_alone(trunk: Trunk, round_: Round, own: Sequence[Choice]) -> Decision:
    """Choose one by one along the kept path, as plain decoding would."""
    if not own:
        return _NO_DECISION
    tree = round_.tree
    # a node whose choice was not needed gets one that no token equals
    chosen = [-1] * len(own)
    logprobs: list[TokenLogprobs | None] = [None] * len(own)
    at = -1
    try:
        while True:
            (chosen[at + 1],), (logprobs[at + 1],) = trunk.choose((own[at + 1],))
            following = (
                node
                for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True))
                if parent == at and token == chosen[at + 1]
            )
            node = next(following, None)
            if node is None:
                return _decision(round_, chosen, logprobs)
            at = node
    except Exception as error:
        return Decision(error=error)
