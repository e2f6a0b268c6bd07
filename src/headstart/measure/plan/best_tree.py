"""The tree that pays best, if it is known how often the second and third guess of a depth are right.

A guess's chance is taken to depend on its depth and rank alone. The tree of n nodes with the most expected tokens then
has the n likeliest paths; which n, and how deep, is settled by cost.

Source: Cai et al. 2401.10774, section 2.3.3, for the likeliest nodes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from headstart.decoding.trees import depths, prune
from headstart.measure.plan.break_even import round_speedup
from headstart.measure.plan.setup import DraftingSetup
from headstart.records import Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class BestTree:
    """A tree and what it brings.

    Attributes:
        tree: with ranks, 0 for a depth's likeliest guess, in place of token ids.
        depth: of its deepest node.
        mean_acceptance_length: tokens a round, the trunk's own included.
        speedup: over plain decoding.
    """

    tree: Tree
    depth: int
    mean_acceptance_length: float
    speedup: float


def best_tree(setup: DraftingSetup, max_nodes: int) -> BestTree:
    """The tree of the highest speed-up; an empty one if none gains.

    Args:
        setup: with acceptance by rank. A depth costs the same however many nodes it has.
        max_nodes: nodes for each sequence at most, at least 1.
    """
    curve = setup.curve(max_nodes)
    best = BestTree(tree=Tree(), depth=0, mean_acceptance_length=1.0, speedup=1.0)
    for max_depth in range(1, setup.max_depth + 1):
        widest = likeliest_tree(setup, max_nodes, max_depth)
        for count in range(1, len(widest) + 1):
            tree = prune(widest, count)
            depth = max(depths(tree))
            speedup = round_speedup(setup, tree, depth, curve)
            if speedup > best.speedup:
                tau = 1.0 + sum(tree.path_probabilities)
                best = BestTree(tree=tree, depth=depth, mean_acceptance_length=tau, speedup=speedup)
    return best


def likeliest_tree(setup: DraftingSetup, max_nodes: int, max_depth: int) -> Tree:
    """The `max_nodes` likeliest paths no deeper than `max_depth`, likeliest first; ranks stand for tokens."""
    tokens: list[int] = []
    parents: list[int] = []
    path_probabilities: list[float] = []
    # (-path probability, order of arrival, parent, rank, depth): equal ones come in order of arrival
    waiting: list[tuple[float, int, int, int, int]] = []

    def add_children(parent: int, reached: float, depth: int) -> None:
        for rank, share in enumerate(setup.ranks(depth)):
            if reached * share > 0.0:
                heapq.heappush(waiting, (-reached * share, len(waiting) + len(tokens), parent, rank, depth))

    add_children(-1, 1.0, 1)
    while waiting and len(tokens) < max_nodes:
        negated, _, parent, rank, depth = heapq.heappop(waiting)
        tokens.append(rank)
        parents.append(parent)
        path_probabilities.append(-negated)
        if depth < max_depth:
            add_children(len(tokens) - 1, -negated, depth + 1)
    return Tree(tuple(tokens), tuple(parents), tuple(path_probabilities))
