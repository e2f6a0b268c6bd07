"""The best tree, against all trees there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.trees import path_tokens
from headstart.measure.plan import DraftingSetup, best_tree, likeliest_tree

RANKS = ((0.6, 0.25), (0.5, 0.3), (0.7, 0.1))
CURVE = CostCurve({1: 1.0, 4: 1.1, 5: 1.6, 12: 2.4})
Path = tuple[int, ...]


def setup_of(draft_cost: float = 0.1, curve: CostCurve = CURVE, concurrency: int = 1) -> DraftingSetup:
    return DraftingSetup(
        acceptance=RANKS, pass_costs=curve, draft_cost_per_depth=draft_cost, max_depth=3, concurrency=concurrency
    )


def all_paths() -> list[Path]:
    return [path for depth in (1, 2, 3) for path in itertools.product((0, 1), repeat=depth)]


def chance(path: Path) -> float:
    reached = 1.0
    for ranks, rank in zip(RANKS, path, strict=False):
        reached *= ranks[rank]
    return reached


def all_trees(most: int) -> Iterator[frozenset[Path]]:
    for count in range(1, most + 1):
        for paths in itertools.combinations(all_paths(), count):
            tree = frozenset(paths)
            if all(len(path) == 1 or path[:-1] in tree for path in tree):
                yield tree


@pytest.mark.parametrize("draft_cost", [0.0, 0.1, 0.35])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_tree_is_better(draft_cost: float, concurrency: int) -> None:
    def speedup(tree: frozenset[Path]) -> float:
        plain = CURVE.cost(concurrency)
        seconds = CURVE.cost(concurrency * (1 + len(tree))) + draft_cost * max(map(len, tree)) * plain
        return (1.0 + sum(map(chance, tree))) * plain / seconds

    found = best_tree(setup_of(draft_cost, concurrency=concurrency), max_nodes=6)
    by_hand = max(map(speedup, all_trees(6)))
    assert found.speedup == pytest.approx(max(by_hand, 1.0))
    assert found.speedup > 1.0 or found.depth == 0


def test_the_likeliest_paths_are_taken_each_after_its_parent() -> None:
    tree = likeliest_tree(setup_of(), max_nodes=8, max_depth=3)
    paths = [path_tokens(tree, node) for node in range(len(tree))]
    likeliest = sorted(all_paths(), key=lambda path: -chance(path))[:8]
    assert sorted(map(chance, paths)) == pytest.approx(sorted(map(chance, likeliest)))
    assert list(tree.path_probabilities) == pytest.approx([chance(path) for path in paths])
    assert all(parent < node for node, parent in enumerate(tree.parents))


def test_depth_and_size_are_bounds() -> None:
    assert {
        len(path_tokens(tree, node)) for tree in [likeliest_tree(setup_of(), 99, 2)] for node in range(len(tree))
    } == {1, 2}
    assert len(likeliest_tree(setup_of(), 99, 2)) == 6


def test_guesses_that_are_never_right_get_no_row() -> None:
    setup = DraftingSetup(acceptance=((0.5, 0.0),), pass_costs=CURVE, max_depth=1)
    assert len(likeliest_tree(setup, 9, 1)) == 1


def test_where_rows_cost_in_full_there_is_no_tree() -> None:
    found = best_tree(setup_of(curve=CostCurve({1: 1.0})), max_nodes=6)
    assert (len(found.tree), found.depth, found.speedup) == (0, 0, 1.0)
