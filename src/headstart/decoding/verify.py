"""Exact verification: which drafted nodes agree with the trunk's own choices.

The choices are the law's, made at every row. A node is kept if it is what the
trunk chose after the node's parent, so the tokens that come out are those of
plain decoding whatever was drafted.
"""

from __future__ import annotations

from typing import Protocol

from headstart.records import Tree, Verdict


class Choices(Protocol):
    """The trunk's own token at each row: a list, or something that asks for a token when it is looked at."""

    def __len__(self) -> int:
        """Rows."""

    def __getitem__(self, row: int, /) -> int:
        """The token that the trunk chooses after a row."""


def verify(tree: Tree, choices: Choices) -> Verdict:
    """Walk down the tree while a child equals the trunk's choice.

    Args:
        tree: the nodes that had rows, parents before children, no two siblings
            alike.
        choices: the trunk's own token at each row, length `len(tree) + 1`:
            `choices[0]` after the root, `choices[i + 1]` after node i. Only
            those after the root and kept nodes are looked at, each once.

    Returns:
        The kept nodes and the choice after the last of them.

    Example:
        >>> verify(Tree((7, 8), (-1, 0), (0.9, 0.5)), [7, 5, 3])
        Verdict(kept_nodes=(0,), next_token=5)
    """
    assert len(choices) == len(tree) + 1, f"{len(choices)} choices for {len(tree)} nodes and the root"
    kept_nodes: list[int] = []
    last_kept, choice = -1, choices[0]
    # children stand after their parent, so one pass over the nodes is the whole walk
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        if parent == last_kept and token == choice:
            kept_nodes.append(node)
            last_kept, choice = node, choices[node + 1]
    return Verdict(tuple(kept_nodes), choice)
