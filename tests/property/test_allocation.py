"""Allocation against brute force over every choice of nodes."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.policy import MARGIN, allocate, expected_speedup, max_useful_nodes
from headstart.decoding.trees import chain
from headstart.records import Tree


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    parents: list[int] = []
    path_probabilities: list[float] = []
    for node in range(draw(st.integers(0, 4))):
        parent = draw(st.integers(-1, node - 1))
        reached = path_probabilities[parent] if parent >= 0 else 1.0
        parents.append(parent)
        # few distinct values, so that ties are common
        path_probabilities.append(reached * draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])))
    return Tree(tuple(range(len(parents))), tuple(parents), tuple(path_probabilities))


@st.composite
def curves(draw: st.DrawFn) -> CostCurve:
    seconds = draw(st.floats(0.5, 2.0))
    points = {}
    for rows in range(1, 16):
        points[rows] = seconds
        seconds += draw(st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0]))  # flat tiles and steps
    return CostCurve(points)


def rate(selected: list[float], fixed_rows: int, cost: CostCurve) -> float:
    return (fixed_rows + sum(selected)) / cost.cost(fixed_rows + len(selected))


def every_choice(tree: Tree) -> list[list[float]]:
    """Path probabilities of every set of nodes that is a tree."""
    choices = []
    for chosen in product([False, True], repeat=len(tree)):
        if all(not chosen[node] or parent < 0 or chosen[parent] for node, parent in enumerate(tree.parents)):
            choices.append([tree.path_probabilities[node] for node in range(len(tree)) if chosen[node]])
    return choices


@given(st.lists(trees(), min_size=1, max_size=2), st.integers(0, 3), curves(), st.integers(1, 12))
def test_no_choice_of_nodes_is_faster(drafts: list[Tree], prompt_rows: int, cost: CostCurve, max_rows: int) -> None:
    fixed_rows = len(drafts) + prompt_rows
    given_rows = allocate(drafts, fixed_rows, cost, max_rows)
    selected = [probability for tree in given_rows for probability in tree.path_probabilities]
    plain = rate([], fixed_rows, cost)
    best = max(
        rate([probability for part in choice for probability in part], fixed_rows, cost)
        for choice in product(*map(every_choice, drafts))
        if fixed_rows + sum(map(len, choice)) <= max(max_rows, fixed_rows)
    )
    assert fixed_rows + len(selected) <= max(max_rows, fixed_rows)
    if selected:
        chosen_rate = rate(selected, fixed_rows, cost)
        assert chosen_rate > plain
        assert chosen_rate >= best * (1 - 1e-12)
    else:
        assert best <= plain * (1 + MARGIN) * (1 + 1e-12)


@given(st.lists(trees(), min_size=1, max_size=3), curves())
def test_what_is_given_rows_is_a_tree_within_the_draft(drafts: list[Tree], cost: CostCurve) -> None:
    for draft, part in zip(drafts, allocate(drafts, len(drafts), cost, 64), strict=True):
        nodes = [draft.tokens.index(token) for token in part.tokens]  # the tokens are distinct
        for index, node in enumerate(nodes):
            parent = part.parents[index]
            assert (nodes[parent] if parent >= 0 else -1) == draft.parents[node]
            assert part.path_probabilities[index] == draft.path_probabilities[node]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=3), st.integers(1, 3), curves(), st.integers(1, 15), st.floats(0, 1)
)
def test_useful_nodes_are_those_of_the_best_chain(
    conditionals: list[float], num_sequences: int, cost: CostCurve, max_rows: int, draft_cost_s: float
) -> None:
    def speedup(length: int) -> float:
        best = chain(range(length), (conditionals + conditionals[-1:] * length)[:length])
        return expected_speedup([best] * num_sequences, num_sequences, cost, draft_cost_s)

    useful = max_useful_nodes(conditionals, num_sequences, num_sequences, cost, max_rows, draft_cost_s)
    possible = range(1, max((max_rows - num_sequences) // num_sequences, 0) + 1)
    best = max(map(speedup, possible), default=0.0)
    if useful:
        assert useful in possible
        assert 1.0 < speedup(useful) >= best * (1 - 1e-12)
    else:
        assert best <= (1 + MARGIN) * (1 + 1e-12)
