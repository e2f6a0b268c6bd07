import math

from hypothesis import given
from hypothesis import strategies as st

from headstart.decoding import trees
from headstart.records import Tree

VOCAB_SIZE, MAX_NODES, MAX_DEPTH = 6, 7, 4


def assert_valid(tree: Tree) -> None:
    assert len(tree.tokens) == len(tree.parents) == len(tree.path_probabilities)
    for node, (token, parent, probability) in enumerate(
        zip(tree.tokens, tree.parents, tree.path_probabilities, strict=True)
    ):
        assert 0 <= token < VOCAB_SIZE
        assert -1 <= parent < node
        assert 0.0 <= probability <= (tree.path_probabilities[parent] if parent >= 0 else 1.0)
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree)


def paths(tree: Tree) -> dict[tuple[int, ...], float]:
    return {trees.path_tokens(tree, node): tree.path_probabilities[node] for node in range(len(tree))}


# anything at all in the place of a number
JUNK = st.one_of(st.none(), st.just("token"), st.floats(), st.integers(), st.booleans())


@st.composite
def adversarial_trees(draw):
    """Mostly sound, with faults of every kind."""
    size = draw(st.integers(0, 12))

    def entries(sound):
        length = draw(st.sampled_from([size, size, size, size + 1, max(0, size - 1)]))
        return tuple(draw(JUNK if draw(st.integers(0, 9)) == 0 else sound(node)) for node in range(length))

    return Tree(
        entries(lambda node: st.integers(0, VOCAB_SIZE - 1)),
        entries(lambda node: st.integers(-1, node - 1)),
        entries(lambda node: st.floats(0.0, 1.0)),
    )


@st.composite
def valid_trees(draw):
    size = draw(st.integers(0, 10))
    tokens, parents, probabilities = [], [], []
    for node in range(size):
        token, parent = draw(st.integers(0, VOCAB_SIZE - 1)), draw(st.integers(-1, node - 1))
        conditional = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
        tokens.append(token)
        parents.append(parent)
        probabilities.append(conditional * (probabilities[parent] if parent >= 0 else 1.0))
    return trees.sanitise(Tree(tuple(tokens), tuple(parents), tuple(probabilities)), VOCAB_SIZE, size, size)


@given(adversarial_trees())
def test_sanitise_always_yields_a_valid_tree_within_the_limits(tree):
    clean = trees.sanitise(tree, VOCAB_SIZE, MAX_NODES, MAX_DEPTH)

    assert_valid(clean)
    assert len(clean) <= MAX_NODES
    assert max(trees.depths(clean), default=0) <= MAX_DEPTH
    assert trees.sanitise(clean, VOCAB_SIZE, MAX_NODES, MAX_DEPTH) is clean


@given(valid_trees())
def test_sanitise_leaves_valid_trees_alone(tree):
    assert_valid(tree)
    assert trees.sanitise(tree, VOCAB_SIZE, len(tree), len(tree)) is tree


@given(valid_trees(), st.integers(0, 10))
def test_prune_keeps_the_largest_total_probability(tree, keep_count):
    pruned = trees.prune(tree, keep_count)

    assert_valid(pruned)
    assert len(pruned) == min(keep_count, len(tree))
    assert paths(pruned).items() <= paths(tree).items()
    best = math.fsum(sorted(tree.path_probabilities, reverse=True)[:keep_count])
    assert math.fsum(pruned.path_probabilities) == best


@given(valid_trees())
def test_of_alternatives_no_more_comes_true_than_their_parent(tree):
    alternatives = trees.as_alternatives(tree)

    assert_valid(alternatives)
    assert all(new <= old for new, old in zip(alternatives.path_probabilities, tree.path_probabilities, strict=True))
    for parent in range(-1, len(tree)):
        path = alternatives.path_probabilities[parent] if parent >= 0 else 1.0
        siblings = [node for node, other in enumerate(tree.parents) if other == parent]
        assert math.fsum(alternatives.path_probabilities[node] for node in siblings) <= path * (1 + 1e-12)


@given(valid_trees(), st.integers(0, 10), st.integers(0, 10))
def test_pruning_in_steps_is_pruning_at_once(tree, first, second):
    assert trees.prune(trees.prune(tree, max(first, second)), min(first, second)) == trees.prune(
        tree, min(first, second)
    )


@given(st.lists(valid_trees(), max_size=3))
def test_merge_is_the_union_of_paths(several):
    merged = trees.merge(several)

    assert_valid(merged)
    expected: dict[tuple[int, ...], float] = {}
    for tree in several:
        for tokens, probability in paths(tree).items():
            expected[tokens] = max(expected.get(tokens, 0.0), probability)
    assert paths(merged) == expected


@given(valid_trees())
def test_merging_a_tree_with_itself_changes_nothing(tree):
    assert trees.merge([tree]) == trees.merge([tree, tree]) == tree


@given(valid_trees())
def test_paths_depths_and_children_agree(tree):
    children = trees.children(tree)
    for node, depth in enumerate(trees.depths(tree)):
        path = trees.path(tree, node)
        assert len(path) == depth
        assert path[-1] == node
        assert all(child in children[parent + 1] for parent, child in zip((-1, *path), path, strict=False))
    assert sorted(node for nodes in children for node in nodes) == list(range(len(tree)))


@given(valid_trees())
def test_conditional_probabilities_multiply_to_path_probabilities(tree):
    conditionals = trees.conditional_probabilities(tree)
    for node in range(len(tree)):
        # powers of two: the products are exact
        assert math.prod(conditionals[index] for index in trees.path(tree, node)) == tree.path_probabilities[node]
