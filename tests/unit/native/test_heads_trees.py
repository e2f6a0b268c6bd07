"""The trees that heads draft: what a slow expansion over their logits gives, whatever runs beside."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart import _native
from headstart.checkpoint import Checkpoint
from headstart.records import SamplingParams, Tree
from headstart.runtime.heads_protocol import HeadsRequest
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.runtime.native_heads import NativeHeads, load_heads
from headstart.testing.passes import rows_of_one
from headstart.testing.tiny_heads import TINY_HEADS, random_heads, tiny_heads_config

GetCheckpoint = Callable[..., Checkpoint]
GetPair = Callable[..., tuple[NativeTrunk, NativeHeads]]

# the second and third end short of a page and begin one; the last is but a root
TEXTS = [np.random.default_rng(length).integers(0, 300, length).astype(np.int32) for length in (29, 15, 33, 1)]
PAGES = [np.array(pages, np.int32) for pages in ((6, 2), (0, 9), (5, 1, 8), (3,))]
VOCABULARY = np.random.default_rng(6).permutation(300)[:111].astype(np.int32)
RECURRENT = [name for name in TINY_HEADS if name.startswith(("sequential", "eagle"))]


@pytest.fixture(scope="module")
def pair(tiny_checkpoint: GetCheckpoint) -> GetPair:
    """`pair(name, vocabulary=False, threads=2, instruction_set=None)`: a trunk that has run all texts, and heads."""

    @functools.cache
    def get(name: str, *, vocabulary: bool = False, **options: Any) -> tuple[NativeTrunk, NativeHeads]:
        checkpoint = tiny_checkpoint(kind="Q8_0")
        config = tiny_heads_config(name, draft_vocab_size=len(VOCABULARY) if vocabulary else 0)
        trunk = load_trunk(checkpoint, taps=config.taps, **{"threads": 2, **options})
        trunk.make_cache(10)
        for text, pages in zip(TEXTS, PAGES, strict=True):
            trunk.forward(rows_of_one(text.tolist(), page_table=pages.tolist(), wanted=[]))
        weights = random_heads(config, trunk.config)
        return trunk, load_heads(trunk, checkpoint, config, weights, VOCABULARY if vocabulary else None)

    return get


def request(index: int, **options: Any) -> HeadsRequest:
    settings = {"max_nodes": 12, "max_depth": 4, "breadth": 3, **options}
    return HeadsRequest(page_table=PAGES[index], first=0, tokens=TEXTS[index], **settings)


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(weights / weights.sum())


def likeliest(logits: NDArray[np.float32], vocabulary: NDArray[np.int32] | None, most: int) -> list[tuple[int, float]]:
    """Tokens and probabilities, best first, ties by lower id."""
    ids = np.arange(len(logits)) if vocabulary is None else vocabulary
    shares = probabilities(logits)
    ranking = sorted(range(len(logits)), key=lambda i: (-logits[i], ids[i]))[:most]
    return [(int(ids[i]), float(shares[i])) for i in ranking]


class Node:
    def __init__(self, parent: Node | None, token: int, path_probability: float) -> None:
        self.path: list[int] = [*parent.path, token] if parent is not None else []
        self.parent = parent
        self.token = token
        self.path_probability = path_probability


def expand_recurrent(heads: NativeHeads, wish: HeadsRequest, vocabulary: NDArray[np.int32] | None) -> Tree:
    """Depth by depth, each row's logits asked for alone."""
    nodes: list[Node] = []
    expanded = [Node(None, -1, 1.0)]
    least = max(wish.min_path_probability, wish.min_parent_probability)
    for depth in range(1, min(wish.max_depth, heads.max_depth) + 1):
        for node in expanded:
            logits = heads.logits(wish.page_table, wish.tokens, node.path)[depth - 1]
            nodes += [
                Node(node, token, node.path_probability * share)
                for token, share in likeliest(logits, vocabulary, wish.max_nodes)
            ]
        best = best_of(nodes, wish)
        expanded = [n for n in best if len(n.path) == depth and n.path_probability >= least]
        expanded = expanded[: wish.breadth]
        if not expanded:
            break
    return as_tree(best_of(nodes, wish))


def best_of(nodes: Sequence[Node], wish: HeadsRequest) -> list[Node]:
    best = sorted(nodes, key=lambda node: -node.path_probability)[: wish.max_nodes]
    return best[:1] + [node for node in best[1:] if node.path_probability >= wish.min_path_probability]


def expand_independent(heads: NativeHeads, wish: HeadsRequest, vocabulary: NDArray[np.int32] | None) -> Tree:
    """Every path there is, best first."""
    logits = heads.logits(wish.page_table, wish.tokens, [])
    levels = [likeliest(row, vocabulary, wish.max_nodes) for row in logits[: wish.max_depth]]

    def paths() -> Iterator[Node]:
        root = Node(None, -1, 1.0)
        waiting: list[tuple[float, int, Node]] = [(-1.0, 0, root)]
        count = 0
        while waiting:
            _, _, node = heapq.heappop(waiting)
            if node is not root:
                yield node
            if len(node.path) == len(levels) or node.path_probability < wish.min_parent_probability:
                continue
            for token, share in levels[len(node.path)]:
                child = Node(node, token, node.path_probability * share)
                heapq.heappush(waiting, (-child.path_probability, count := count + 1, child))

    taken: list[Node] = []
    for node in paths():
        if len(taken) == wish.max_nodes or (taken and node.path_probability < wish.min_path_probability):
            break
        taken.append(node)
    return as_tree(taken)


def as_tree(nodes: Sequence[Node]) -> Tree:
    index = {node: i for i, node in enumerate(nodes)}
    parents = tuple(index.get(node.parent, -1) for node in nodes)  # type: ignore[arg-type]
    return Tree(tuple(n.token for n in nodes), parents, tuple(n.path_probability for n in nodes))


def assert_same_tree(found: Tree, expected: Tree) -> None:
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)
    np.testing.assert_allclose(found.path_probabilities, expected.path_probabilities, rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [False, True], ids=["whole", "reduced"])
@pytest.mark.parametrize("name", TINY_HEADS)
def test_trees_are_the_slow_expansion(name: str, vocabulary: bool, pair: GetPair) -> None:
    _, heads = pair(name, vocabulary=vocabulary)
    expand = expand_recurrent if name in RECURRENT else expand_independent
    for wish in (
        request(0),
        request(1, breadth=1, max_depth=7),
        request(2, max_nodes=20, breadth=5, min_path_probability=0.02),
        request(3, max_nodes=5, max_depth=2),
        request(0, max_nodes=1, max_depth=1),
        request(0, min_path_probability=0.99),
        request(2, max_nodes=20, breadth=5, min_path_probability=0.01, min_parent_probability=0.1),
        request(1, max_nodes=20, min_parent_probability=1.0),
    ):
        (found,) = heads.draft([wish])
        assert_same_tree(found, expand(heads, wish, VOCABULARY if vocabulary else None))
        assert len(found) <= wish.max_nodes


def test_an_unrolled_module_goes_deeper_than_it_was_trained_for(pair: GetPair) -> None:
    assert pair("eagle3")[1].max_depth > tiny_heads_config("eagle3").depth
    for name in ("sequential", "medusa", "parallel", "sequential, one module"):
        assert pair(name)[1].max_depth == tiny_heads_config(name).depth


@pytest.mark.parametrize("name", TINY_HEADS)
def test_sequences_side_by_side_are_as_alone(name: str, pair: GetPair) -> None:
    _, heads = pair(name)
    wishes = [
        request(0),
        request(1, breadth=8, max_depth=6, max_nodes=40),
        request(2, max_nodes=0),
        request(3, max_depth=2),
        request(2, breadth=1),
    ]
    alone = [heads.draft([wish])[0] for wish in wishes]
    assert len(alone[2]) == 0
    assert heads.draft(wishes) == alone
    assert heads.draft([wishes[i] for i in (3, 1, 0)]) == [alone[i] for i in (3, 1, 0)]


def test_more_rows_than_there_are_scratch_pages_for(pair: GetPair) -> None:
    _, heads = pair("eagle3")
    wish = request(0, breadth=64, max_depth=40, max_nodes=64)
    assert heads.draft([wish] * 9) == heads.draft([wish]) * 9


@pytest.mark.parametrize("name", TINY_HEADS)
@pytest.mark.parametrize("cuts", [(1,), (16,), (5, 6, 21), (28,)])
def test_catching_up_in_any_pieces_leaves_the_same(name: str, cuts: tuple[int, ...], pair: GetPair) -> None:
    _, heads = pair(name)
    wish = request(0)
    at_once = heads.draft([wish])
    heads.draft([replace(request(0, max_nodes=0), tokens=TEXTS[0][::-1].copy())])  # other text in the same slots
    bounds = [0, *cuts, len(TEXTS[0])]
    for begin, end in itertools.pairwise(bounds):
        piece = replace(wish, first=begin, tokens=TEXTS[0][begin:end], max_nodes=12 if end == bounds[-1] else 0)
        found = heads.draft([piece])
    assert found == at_once


@pytest.mark.parametrize("name", ["eagle3", "sequential", "parallel", "medusa"])
def test_guesses_leave_nothing_behind(name: str, pair: GetPair) -> None:
    _, heads = pair(name)
    expected = heads.draft([request(0)])
    heads.draft([replace(request(0, max_nodes=0), tokens=TEXTS[0][:20])])
    # guesses after token 19, in the slots of what comes later
    heads.draft([replace(request(0, max_nodes=30, breadth=10), first=19, tokens=TEXTS[0][19:20])])
    assert heads.draft([replace(request(0), first=20, tokens=TEXTS[0][20:])]) == expected


@pytest.mark.parametrize("name", TINY_HEADS)
def test_instruction_sets_and_threads_agree_to_the_bit(name: str, pair: GetPair) -> None:
    found = [
        pair(name, vocabulary=True, instruction_set=instruction_set, threads=threads)[1].draft(
            [request(0, max_nodes=30), request(2, breadth=7)]
        )
        for instruction_set in _native.instruction_sets()
        for threads in (1, 2)
    ]
    assert all(trees == found[0] for trees in found)


def test_the_context_ends_a_tree(pair: GetPair) -> None:
    trunk, heads = pair("eagle3")
    text = np.random.default_rng(9).integers(0, 300, trunk.max_context - 2).astype(np.int32)
    trunk_pages = np.zeros(trunk.max_context // 16, np.int32)  # where keys lie is of no matter here
    for length, depth in ((trunk.max_context - 2, 3), (trunk.max_context, 1)):
        tokens = np.resize(text, length)
        wish = HeadsRequest(
            page_table=trunk_pages, first=length - 1, tokens=tokens[-1:], max_nodes=300, max_depth=8, breadth=64
        )
        (tree,) = heads.draft([wish])
        assert max_tree_depth(tree) == depth


def max_tree_depth(tree: Tree) -> int:
    depths: list[int] = []
    for parent in tree.parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_law_in_force(temperature: float, pair: GetPair) -> None:
    """A greedy law changes nothing; one that samples draws other trees by seed, the same ones each time."""
    trunk, heads = pair("eagle3")
    greedy = heads.draft([request(0)])

    def drawn(seed: int) -> list[Tree]:
        chooser = trunk.make_chooser(SamplingParams(temperature=temperature), seed, [1], [])
        return heads.draft([request(0, chooser=chooser)])

    assert drawn(1) == drawn(1)
    if temperature == 0.0:
        assert drawn(1) == greedy
    else:
        assert len({drawn(seed)[0].tokens[0] for seed in range(20)}) > 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": np.array([], np.int32)}, "at least the root"),
        ({"first": -1}, "past the context"),
        ({"first": 500}, "past the context"),
        ({"page_table": np.array([6], np.int32)}, "past the page table"),
        ({"page_table": np.array([6, 10], np.int32)}, "page 10 is not among"),
        ({"tokens": np.array([300], np.int32)}, "token 300 is not in the vocabulary"),
        ({"max_nodes": -1}, "max_nodes"),
        ({"max_depth": 0}, "max_depth"),
        ({"breadth": 0}, "breadth"),
        ({"breadth": 65}, "breadth"),
    ],
)
def test_requests_that_break_the_rules(changes: dict[str, Any], message: str, pair: GetPair) -> None:
    _, heads = pair("eagle3")
    expected = heads.draft([request(0)])
    with pytest.raises(ValueError, match=message):
        heads.draft([replace(request(0), **changes)])
    assert heads.draft([request(0)]) == expected
