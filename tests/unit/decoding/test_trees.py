import math

import numpy as np
import pytest

from headstart.decoding import trees
from headstart.records import EMPTY_TREE, Tree

#        root
#       /    \
#     10      11
#    /  \       \
#  20    21      22
#  |
#  30
BRANCHING = Tree((10, 11, 20, 21, 22, 30), (-1, -1, 0, 0, 1, 2), (0.6, 0.3, 0.4, 0.2, 0.3, 0.1))


def test_chain_multiplies_conditional_probabilities():
    assert trees.chain([7, 8, 9], [0.5, 0.5, 1.0]) == Tree((7, 8, 9), (-1, 0, 1), (0.5, 0.25, 0.25))


def test_only_a_tree_without_branches_is_a_chain():
    assert trees.is_chain(trees.chain([7, 8, 9], [1.0, 1.0, 1.0]))
    assert trees.is_chain(EMPTY_TREE)
    assert not trees.is_chain(BRANCHING)
    assert not trees.is_chain(Tree((7, 8), (-1, -1), (0.5, 0.5)))


def test_structure_of_a_branching_tree():
    assert trees.depths(BRANCHING) == (1, 1, 2, 2, 2, 3)
    assert trees.children(BRANCHING) == [[0, 1], [2, 3], [4], [5], [], [], []]
    assert trees.path(BRANCHING, 5) == (0, 2, 5)
    assert trees.path_tokens(BRANCHING, 5) == (10, 20, 30)
    assert trees.path_tokens(BRANCHING, 1) == (11,)


def test_conditional_probabilities_undo_the_products():
    tree = Tree((1, 2, 3, 4), (-1, 0, 1, -1), (0.5, 0.25, 0.0, 0.0))

    assert trees.conditional_probabilities(tree) == (0.5, 0.5, 0.0, 0.0)
    assert trees.conditional_probabilities(Tree((1, 2), (-1, 0), (0.0, 0.0))) == (0.0, 0.0)


def test_take_keeps_the_order_and_renumbers_parents():
    assert trees.take(BRANCHING, [4, 1, 0, 3]) == Tree((10, 11, 21, 22), (-1, -1, 0, 1), (0.6, 0.3, 0.2, 0.3))


def test_take_needs_the_parents():
    with pytest.raises(KeyError):
        trees.take(BRANCHING, [0, 5])


@pytest.mark.parametrize(
    ("keep_count", "tokens"),
    [
        (0, ()),
        (1, (10,)),
        (2, (10, 20)),
        (3, (10, 11, 20)),  # 11 and 22 are as likely; the parent stands first
        (4, (10, 11, 20, 22)),
        (6, (10, 11, 20, 21, 22, 30)),
        (99, (10, 11, 20, 21, 22, 30)),
    ],
)
def test_prune_keeps_the_likeliest(keep_count, tokens):
    assert trees.prune(BRANCHING, keep_count).tokens == tokens


def test_merge_joins_equal_paths_at_their_highest_probability():
    first = Tree((1, 2), (-1, 0), (0.5, 0.4))
    second = Tree((3, 1, 2, 2), (-1, -1, 0, 1), (0.9, 0.6, 0.3, 0.2))

    merged = trees.merge([first, second])

    # the 2 after 3 is another path than the 2 after 1
    assert merged == Tree((1, 2, 3, 2), (-1, 0, -1, 2), (0.6, 0.4, 0.9, 0.3))


def test_merge_of_nothing_is_empty():
    assert trees.merge([]) == trees.merge([EMPTY_TREE, EMPTY_TREE]) == EMPTY_TREE


def test_of_guesses_for_one_place_at_most_one_comes_true():
    sure_of_two = Tree((7, 8, 9, 5, 6), (-1, -1, 1, -1, 0), (0.9, 0.8, 0.4, 0.3, 0.45))
    alternatives = trees.as_alternatives(sure_of_two)
    # the likeliest is believed, the next gets what that leaves, its child as large a part of it, and the third nothing
    assert alternatives.path_probabilities == pytest.approx((0.9, 0.1, 0.05, 0.0, 0.45))
    assert (alternatives.tokens, alternatives.parents) == (sure_of_two.tokens, sure_of_two.parents)
    assert trees.as_alternatives(alternatives).path_probabilities == pytest.approx(alternatives.path_probabilities)
    unsure = Tree((1, 2, 3), (-1, -1, 0), (0.5, 0.3, 0.2))
    assert trees.as_alternatives(unsure) == unsure
    assert trees.as_alternatives(EMPTY_TREE) == EMPTY_TREE


def test_sanitise_returns_a_valid_tree_itself():
    assert trees.sanitise(BRANCHING, vocab_size=31, max_nodes=6, max_depth=3) is BRANCHING


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param(
            Tree((1, 99, 3, 4), (-1, -1, 1, 0), (0.5, 0.5, 0.5, 0.5)),
            Tree((1, 4), (-1, 0), (0.5, 0.5)),
            id="out-of-vocabulary-and-its-child",
        ),
        pytest.param(Tree((-1, 2), (-1, -1), (0.5, 0.5)), Tree((2,), (-1,), (0.5,)), id="negative-token"),
        pytest.param(
            Tree((1, 2, 3), (-1, 0, 1), (0.5, math.nan, 0.1)), Tree((1,), (-1,), (0.5,)), id="nan-and-its-child"
        ),
        pytest.param(Tree((1, 2), (-1, 1), (0.5, 0.5)), Tree((1,), (-1,), (0.5,)), id="own-parent"),
        pytest.param(Tree((1, 2), (-1, 0), (0.5, 0.7)), Tree((1, 2), (-1, 0), (0.5, 0.5)), id="rising-a-little"),
        pytest.param(Tree((1, 2), (-1, -1), (math.inf, -0.5)), EMPTY_TREE, id="not-probabilities"),
        pytest.param(
            Tree((1, 2, 3), (-1, 0, -1), (0.5, 0.7, 1.5)), Tree((1, 2, 3), (-1, 0, -1), (0.5, 0.5, 1.0)), id="rising"
        ),
        pytest.param(Tree((1, 2, 3, 4), (1, 1, -2, 7), (0.5,) * 4), EMPTY_TREE, id="parents-that-do-not-precede"),
        pytest.param(
            Tree((1, 1, 2, 2), (-1, -1, 0, 1), (0.3, 0.5, 0.2, 0.4)),
            Tree((1, 2), (-1, 0), (0.3, 0.2)),
            id="repeated-sibling-and-its-child",
        ),
        pytest.param(
            Tree((1, 2, 3, 4), (-1, 0, 1, 2), (0.5,) * 4), Tree((1, 2, 3), (-1, 0, 1), (0.5,) * 3), id="too-deep"
        ),
        pytest.param(
            Tree((1, 2, 3, 4, 5), (-1,) * 5, (0.1, 0.5, 0.1, 0.4, 0.3)),
            Tree((1, 2, 4, 5), (-1,) * 4, (0.1, 0.5, 0.4, 0.3)),
            id="too-many",
        ),
        pytest.param(Tree((1, 2, 3), (-1, 0), (0.5,)), Tree((1,), (-1,), (0.5,)), id="lengths-differ"),
        pytest.param(Tree((1.5, None, "x"), (-1,) * 3, (0.5,) * 3), EMPTY_TREE, id="not-numbers"),
        pytest.param(Tree((1, 2), (-1, 0.0), (0.5, None)), Tree((1,), (-1,), (0.5,)), id="not-numbers-either"),
        pytest.param(Tree((10**400, 1), (-1, -1), (0.5, 10**400)), EMPTY_TREE, id="huge"),
    ],
)
def test_sanitise_drops(tree, expected):
    assert trees.sanitise(tree, vocab_size=10, max_nodes=4, max_depth=3) == expected


def test_sanitise_turns_array_scalars_into_plain_numbers():
    tree = Tree((np.int32(1),), (np.int64(-1),), (np.float32(0.5),))

    clean = trees.sanitise(tree, vocab_size=10, max_nodes=4, max_depth=3)

    assert clean == Tree((1,), (-1,), (0.5,))
    assert [type(entry[0]) for entry in (clean.tokens, clean.parents, clean.path_probabilities)] == [int, int, float]


def test_a_node_of_a_union_comes_from_the_first_tree_that_has_its_path():
    second = Tree((11, 10, 21, 23), (-1, -1, 1, 0), (0.5, 0.4, 0.3, 0.2))
    third = Tree((12, 11, 23), (-1, -1, 1), (0.1, 0.1, 0.1))
    union = trees.merge([BRANCHING, second, third])

    by_path = dict(
        zip(
            (trees.path_tokens(union, node) for node in range(len(union))),
            trees.origins(union, [BRANCHING, second, third]),
            strict=True,
        )
    )

    assert by_path == {
        (10,): 0, (11,): 0, (10, 20): 0, (10, 21): 0, (11, 22): 0, (10, 20, 30): 0, (11, 23): 1, (12,): 2,
    }  # fmt: skip
    part = trees.prune(union, 4)
    assert trees.origins(part, [EMPTY_TREE, BRANCHING]) == [1] * 4
    with pytest.raises(ValueError, match="in no source"):
        trees.origins(union, [BRANCHING])
