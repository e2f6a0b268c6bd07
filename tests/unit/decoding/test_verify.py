import pytest

from headstart.decoding.verify import verify
from headstart.records import EMPTY_TREE, Tree, Verdict

#        root
#       /    \
#     10      11        nodes 0 1
#    /  \       \
#  20    21      20     nodes 2 3 4
TREE = Tree((10, 11, 20, 21, 20), (-1, -1, 0, 0, 1), (0.6, 0.3, 0.4, 0.2, 0.3))


@pytest.mark.parametrize(
    ("choices", "kept_nodes", "next_token"),
    [
        ([5, 20, 20, 9, 9, 9], (), 5),  # a wrong first node takes its whole branch with it
        ([10, 5, 20, 9, 9, 9], (0,), 5),
        ([10, 20, 6, 7, 8, 9], (0, 2), 7),
        ([10, 21, 6, 7, 8, 9], (0, 3), 8),
        ([11, 21, 20, 7, 8, 9], (1, 4), 9),
    ],
)
def test_the_walk_follows_the_choices(choices, kept_nodes, next_token):
    assert verify(TREE, choices) == Verdict(kept_nodes, next_token)


def test_an_empty_tree_yields_the_roots_choice():
    assert verify(EMPTY_TREE, [3]) == Verdict((), 3)


def test_every_row_needs_a_choice():
    with pytest.raises(AssertionError, match="5 choices for 5 nodes"):
        verify(TREE, [1, 2, 3, 4, 5])


def test_only_rows_on_the_kept_path_are_looked_at_each_once():
    seen = []

    class Watched(list):
        def __getitem__(self, row):
            seen.append(row)
            return super().__getitem__(row)

    assert verify(TREE, Watched([10, 21, 6, 7, 8, 9])).kept_nodes == (0, 3)
    assert seen == [0, 1, 4]
