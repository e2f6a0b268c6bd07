"""Trees of guesses: building, checking, pruning and merging them.

A valid tree has its parents before their children, no two siblings with the
same token, and path probabilities that never rise from parent to child. Every
function here but `sanitise` takes valid trees, and all return them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headstart.records import Tree


def chain(tokens: Sequence[int], probabilities: Sequence[float]) -> Tree:
    """A tree without branches.

    Args:
        tokens: guesses for depth 1, 2, ...
        probabilities: of each guess given that those before it are accepted, in
            [0, 1]. Path probabilities are their running products.

    Example:
        >>> chain([7, 8], [0.9, 0.5])
        Tree(tokens=(7, 8), parents=(-1, 0), path_probabilities=(0.9, 0.45))
    """
    path_probabilities: list[float] = []
    reached = 1.0
    for probability in probabilities:
        reached *= probability
        path_probabilities.append(reached)
    assert len(tokens) == len(path_probabilities)
    return Tree(tuple(tokens), tuple(range(-1, len(tokens) - 1)), tuple(path_probabilities))


def is_chain(tree: Tree) -> bool:
    """Whether every node is the only child of the one before it."""
    return tree.parents == tuple(range(-1, len(tree) - 1))


def depths(tree: Tree) -> tuple[int, ...]:
    """The depth of each node; 1 for a child of the root."""
    result: list[int] = []
    for parent in tree.parents:
        result.append(result[parent] + 1 if parent >= 0 else 1)
    return tuple(result)


def children(tree: Tree) -> list[list[int]]:
    """The children of each row, ascending: entry 0 is the root's, entry i + 1 node i's."""
    result: list[list[int]] = [[] for _ in range(len(tree) + 1)]
    for node, parent in enumerate(tree.parents):
        result[parent + 1].append(node)
    return result


def path(tree: Tree, node: int) -> tuple[int, ...]:
    """The nodes from the root's child down to `node`, which is the last."""
    upward: list[int] = []
    while node >= 0:
        upward.append(node)
        node = tree.parents[node]
    return tuple(reversed(upward))


def path_tokens(tree: Tree, node: int) -> tuple[int, ...]:
    """The tokens from the root's child down to `node`'s own."""
    return tuple(tree.tokens[index] for index in path(tree, node))


def conditional_probabilities(tree: Tree) -> tuple[float, ...]:
    """The probability of each node given that its parent is accepted; 0 if that is impossible."""
    result: list[float] = []
    for probability, parent in zip(tree.path_probabilities, tree.parents, strict=True):
        reached = tree.path_probabilities[parent] if parent >= 0 else 1.0
        result.append(probability / reached if reached > 0.0 else 0.0)
    return tuple(result)


def take(tree: Tree, nodes: Iterable[int]) -> Tree:
    """The tree of some nodes alone, in the order they had.

    Args:
        tree: a valid tree.
        nodes: with every node, its parent.

    Raises:
        KeyError: a parent is missing.
    """
    new_index = {-1: -1}
    for node in sorted(set(nodes)):
        new_index[node] = len(new_index) - 1
    taken = [node for node in new_index if node >= 0]
    return Tree(
        tuple(tree.tokens[node] for node in taken),
        tuple(new_index[tree.parents[node]] for node in taken),
        tuple(tree.path_probabilities[node] for node in taken),
    )


def prune(tree: Tree, keep_count: int) -> Tree:
    """The likeliest nodes, at most `keep_count`; of equal ones the first.

    A parent is never less likely than its child and stands before it, so the
    likeliest nodes form a tree by themselves.
    """
    if len(tree) <= keep_count:
        return tree
    by_probability = sorted(range(len(tree)), key=lambda node: -tree.path_probabilities[node])
    return take(tree, by_probability[:keep_count])


def merge(trees: Sequence[Tree]) -> Tree:
    """The union of several trees for the same root.

    Nodes with the same path become one, with the highest of their
    probabilities. Earlier trees' nodes come first.
    """
    tokens: list[int] = []
    parents: list[int] = []
    path_probabilities: list[float] = []
    merged_node: dict[tuple[int, int], int] = {}  # (merged parent, token) -> merged node
    for tree in trees:
        placed: list[int] = []
        for token, parent, probability in zip(tree.tokens, tree.parents, tree.path_probabilities, strict=True):
            merged_parent = placed[parent] if parent >= 0 else -1
            node = merged_node.setdefault((merged_parent, token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(merged_parent)
                path_probabilities.append(probability)
            else:
                path_probabilities[node] = max(path_probabilities[node], probability)
            placed.append(node)
    return Tree(tuple(tokens), tuple(parents), tuple(path_probabilities))


def as_alternatives(tree: Tree) -> Tree:
    """The same nodes, with probabilities of which at most one child of each parent comes true.

    Drafters that guess differently may both be sure. The likeliest is believed, and others share what it leaves.
    """
    of_parent: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        of_parent.setdefault(parent, []).append(node)
    path = [*tree.path_probabilities]
    # parents stand before their children, and so do their entries
    for parent, siblings in of_parent.items():
        before, left = (tree.path_probabilities[parent], path[parent]) if parent >= 0 else (1.0, 1.0)
        scale = left / before if before > 0.0 else 0.0
        for node in sorted(siblings, key=lambda node: -tree.path_probabilities[node]):
            path[node] = min(tree.path_probabilities[node] * scale, left)
            left = max(left - path[node], 0.0)
    return replace(tree, path_probabilities=tuple(path))


def origins(tree: Tree, sources: Sequence[Tree]) -> list[int]:
    """For each node, the index of the first of `sources` that has it too; all are trees for the same root.

    Args:
        tree: nodes of a `merge` of the sources.
        sources: trees in order of precedence.

    Raises:
        ValueError: a node that is in none of them.
    """
    places: list[list[int | None]] = []  # where each node lies in each source
    for source in sources:
        nodes = {key: node for node, key in enumerate(zip(source.parents, source.tokens, strict=True))}
        placed: list[int | None] = []
        for token, parent in zip(tree.tokens, tree.parents, strict=True):
            source_parent = placed[parent] if parent >= 0 else -1
            placed.append(None if source_parent is None else nodes.get((source_parent, token)))
        places.append(placed)
    result = []
    for node in range(len(tree)):
        found = [index for index, placed in enumerate(places) if placed[node] is not None]
        if not found:
            raise ValueError(f"node {node} of {tree} is in no source")
        result.append(found[0])
    return result


def sanitise(tree: Tree, vocab_size: int, max_nodes: int, max_depth: int) -> Tree:
    """A valid tree from whatever a drafter gave; the same object if it is valid already.

    Dropped, with all their descendants: tokens outside the vocabulary,
    probabilities that are negative or not finite, nodes that do not follow
    their parent, nodes too deep, and repeated siblings (the first stays). A
    probability above the parent's is lowered to it. Of too many nodes the
    likeliest stay.

    Args:
        tree: tuples of any length and content; surplus entries of the longer
            ones are ignored.
        vocab_size: token ids are below it.
        max_nodes: nodes at most.
        max_depth: depth at most.
    """
    if _is_valid(tree, vocab_size, max_depth):
        return prune(tree, max_nodes)
    tokens: list[int] = []
    parents: list[int] = []
    path_probabilities: list[float] = []
    depth_of: list[int] = []
    new_index: dict[int, int] = {-1: -1}  # of the nodes that stay
    siblings: set[tuple[int, int]] = set()
    for node, entry in enumerate(zip(tree.tokens, tree.parents, tree.path_probabilities, strict=False)):
        try:
            token, parent, probability = operator.index(entry[0]), operator.index(entry[1]), float(entry[2])
        except (TypeError, ValueError, OverflowError):
            continue
        if parent not in new_index or not 0 <= token < vocab_size or not 0.0 <= probability < math.inf:
            continue
        parent = new_index[parent]
        depth = depth_of[parent] + 1 if parent >= 0 else 1
        if depth > max_depth or (parent, token) in siblings:
            continue
        new_index[node] = len(tokens)
        siblings.add((parent, token))
        tokens.append(token)
        parents.append(parent)
        path_probabilities.append(min(probability, path_probabilities[parent] if parent >= 0 else 1.0))
        depth_of.append(depth)
    return prune(Tree(tuple(tokens), tuple(parents), tuple(path_probabilities)), max_nodes)


def _is_valid(tree: Tree, vocab_size: int, max_depth: int) -> bool:
    """The quick check of the usual case; it runs for every sequence in every round."""
    if not len(tree.tokens) == len(tree.parents) == len(tree.path_probabilities):
        return False
    # one entry before the nodes, so that a parent of -1 finds the root at index 0
    depth_of = [0]
    reached = [1.0]
    siblings = set()
    for node, token in enumerate(tree.tokens):
        parent, probability = tree.parents[node], tree.path_probabilities[node]
        if not (
            type(token) is type(parent) is int
            and type(probability) is float
            and 0 <= token < vocab_size
            and -1 <= parent < node
            and 0.0 <= probability <= reached[parent + 1]  # false for NaN
            and depth_of[parent + 1] < max_depth
        ):
            return False
        depth_of.append(depth_of[parent + 1] + 1)
        reached.append(probability)
        siblings.add((parent, token))
    return len(siblings) == len(tree.tokens)
