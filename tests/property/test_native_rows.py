"""However a text is cut into passes, trees and pages, the native core gives each row the same bits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headstart import _native
from headstart.checkpoint import open_checkpoint
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.testing.passes import prefill_logits, rows_of_one, side_by_side, wanted_logits
from headstart.testing.tiny_models import write_tiny_gguf

NUM_PAGES = 8
MODELS: dict[str, dict[str, Any]] = {
    "F32": {"kind": "F32"},
    "Q8_0": {"kind": "Q8_0"},
    "window": {"kind": "Q4_1", "window": 9},
    "window f32": {"kind": "F32", "window": 17, "family": "mistral"},
}
Tokens = list[int]
tokens_of = functools.partial(st.lists, st.integers(0, 299))
models = st.sampled_from(sorted(MODELS))
kernels = st.sampled_from(_native.instruction_sets())
threads_of = st.sampled_from([1, 2, 3])
page_orders = st.permutations(range(NUM_PAGES))


@pytest.fixture(scope="module")
def trunk_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @functools.cache
    def get(name: str, instruction_set: str, threads: int, role: str = "tested") -> NativeTrunk:
        path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", **MODELS[name])
        return load_trunk(open_checkpoint(path), threads=threads, instruction_set=instruction_set)

    return get


def prefill(trunk: NativeTrunk, tokens: Tokens, table: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float32]:
    """Logits of all rows, run in chunks of these sizes, the rest in one."""
    found, begin = [], 0
    for size in [*sizes, len(tokens)]:
        if chunk := tokens[begin : begin + size]:
            found.append(wanted_logits(trunk, rows_of_one(chunk, committed=begin, page_table=table)))
        begin += size
    return np.concatenate(found)


@settings(max_examples=200)
@given(
    tokens_of(min_size=1, max_size=70),
    st.lists(st.integers(1, 20), max_size=12),
    models,
    kernels,
    threads_of,
    page_orders,
)
def test_prefill_may_be_split_anywhere(
    trunk_of: Any, tokens: Tokens, sizes: list[int], model: str, isa: str, threads: int, table: list[int]
) -> None:
    expected = prefill_logits(trunk_of(model, "portable", 1, "reference"), tokens)
    trunk = trunk_of(model, isa, threads)
    trunk.make_cache(NUM_PAGES)
    np.testing.assert_array_equal(prefill(trunk, tokens, table, sizes), expected)


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 20) -> tuple[Tokens, list[int]]:
    tokens = draw(tokens_of(min_size=1, max_size=max_nodes))
    # mostly deep: a parent is one of the last few nodes
    parents = [draw(st.integers(max(-1, node - 4), node - 1)) for node in range(len(tokens))]
    return tokens, parents


def path_to(parents: Sequence[int], node: int) -> list[int]:
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


@settings(max_examples=200)
@given(tokens_of(max_size=60), trees(), trees(), models, kernels, threads_of, page_orders)
def test_a_branch_of_a_tree_is_a_text(
    trunk_of: Any,
    prefix: Tokens,
    tree: tuple[Tokens, list[int]],
    second_tree: tuple[Tokens, list[int]],
    model: str,
    isa: str,
    threads: int,
    table: list[int],
) -> None:
    """A tree's row, alone or beside another sequence, then its path moved into place and written on from."""
    reference, trunk = trunk_of(model, "portable", 1, "reference"), trunk_of(model, isa, threads)
    tokens, parents = tree
    trunk.make_cache(NUM_PAGES)
    if prefix:
        trunk.forward(rows_of_one(prefix, page_table=table, wanted=[]))
    own_pages, other_pages = table[:-2], table[-2:]
    rows = [
        rows_of_one(tokens, committed=len(prefix), parents=parents, page_table=own_pages),
        rows_of_one(second_tree[0], parents=second_tree[1], page_table=other_pages),
    ]
    found = wanted_logits(trunk, side_by_side(*rows))[: len(tokens)]
    path: list[int] = []
    for node in range(len(tokens)):
        path = path_to(parents, node)
        text = [*prefix, *(tokens[step] for step in path)]
        np.testing.assert_array_equal(found[node], prefill_logits(reference, text)[-1], f"node {node}")
    # keep the last node's path, as the engine does, and let a new tree follow
    num_committed = len(prefix) + len(path)
    sources = [len(prefix) + step for step in path]
    trunk.move(np.asarray(own_pages, np.int32), sources, list(range(len(prefix), num_committed)))
    kept = [*prefix, *(tokens[step] for step in path)]
    follow = tokens[: 96 - num_committed]
    expected = prefill_logits(reference, [*kept, *follow])[num_committed:]
    on = wanted_logits(trunk, rows_of_one(follow, committed=num_committed, page_table=own_pages))
    np.testing.assert_array_equal(on, expected)
