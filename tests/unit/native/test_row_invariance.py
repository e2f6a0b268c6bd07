"""A row's logits have the same bits alone or in company, in whatever slots and pages its text lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart import _native
from headstart.checkpoint.dequantize import DEQUANTIZERS
from headstart.runtime.native import NativeTrunk
from headstart.testing.passes import prefill_logits, rows_of_one, side_by_side, wanted_logits
from headstart.testing.tiny_models import VOCAB_SIZE

GetTrunk = Callable[..., NativeTrunk]
INSTRUCTION_SETS = _native.instruction_sets()
WINDOW = 7
# what each model must prove anew: every weight kind, window, cache format
MODELS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in sorted(DEQUANTIZERS)},
    "int8": {"kind": "F32", "weights": "int8"},
    "int8-row": {"kind": "F32", "weights": "int8-row"},
    "window": {"kind": "Q8_0", "window": WINDOW},
    "window f32": {"kind": "F32", "window": WINDOW},
    "f32 cache": {"kind": "Q8_0", "cache": "f32"},
    "f16 cache": {"kind": "F32", "cache": "f16"},
    "qwen2": {"family": "qwen2"},
    "qwen3": {"family": "qwen3"},
}
FEW = ["F32", "Q4_K", "Q8_0", "window", "window f32"]


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE - 1, length).tolist()


def in_steps(trunk: NativeTrunk, tokens: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float32]:
    """Logits of all rows, the text run in chunks of these sizes (the last one takes the rest)."""
    trunk.make_cache(-(-len(tokens) // 16))
    found, begin = [], 0
    for size in [*sizes, len(tokens)]:
        if chunk := tokens[begin : begin + size]:
            found.append(wanted_logits(trunk, rows_of_one(chunk, committed=begin)))
        begin += size
    return np.concatenate(found)


@pytest.mark.parametrize("name", MODELS)
def test_one_by_one_as_in_one_pass(name: str, tiny_trunk: GetTrunk) -> None:
    trunk, tokens = tiny_trunk(**MODELS[name]), text(50)
    np.testing.assert_array_equal(in_steps(trunk, tokens, [1] * 50), prefill_logits(trunk, tokens))


@pytest.mark.parametrize("name", MODELS)
def test_instruction_sets_and_threads_agree(name: str, tiny_trunk: GetTrunk) -> None:
    tokens = text(50)
    reference = prefill_logits(tiny_trunk(**MODELS[name], instruction_set="portable"), tokens)
    assert np.isfinite(reference).all()
    for instruction_set in INSTRUCTION_SETS:
        for threads in (1, 2, 4):
            trunk = tiny_trunk(**MODELS[name], instruction_set=instruction_set, threads=threads)
            np.testing.assert_array_equal(prefill_logits(trunk, tokens), reference, f"{instruction_set} {threads}")
            np.testing.assert_array_equal(
                in_steps(trunk, tokens, [47, 1, 1]), reference, f"{instruction_set} {threads}"
            )


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 47, 48, 49])
@pytest.mark.parametrize("name", FEW)
def test_page_borders(name: str, length: int, tiny_trunk: GetTrunk) -> None:
    trunk, tokens = tiny_trunk(**MODELS[name]), text(60)
    reference = prefill_logits(trunk, tokens)
    np.testing.assert_array_equal(in_steps(trunk, tokens, [length, 1, 2]), reference)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_beside_other_sequences(name: str, threads: int, tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk(**MODELS[name], threads=threads)
    texts = [text(length, seed) for seed, length in enumerate((40, 7, 33, 18))]
    references = [prefill_logits(trunk, tokens) for tokens in texts]
    tables = [[9, 1, 4], [0], [2, 8, 5], [7, 3]]
    trunk.make_cache(10)
    # 13 rows of each at most, all of different length in the cache
    done = [0] * len(texts)
    while any(begin < len(tokens) for begin, tokens in zip(done, texts, strict=True)):
        parts, expected = [], []
        for index, tokens in enumerate(texts):
            chunk = tokens[done[index] : done[index] + 3 + 5 * (index % 3)]
            if chunk:
                parts.append(rows_of_one(chunk, committed=done[index], page_table=tables[index]))
                expected.append(references[index][done[index] : done[index] + len(chunk)])
                done[index] += len(chunk)
        np.testing.assert_array_equal(wanted_logits(trunk, side_by_side(*parts)), np.concatenate(expected))


def test_only_wanted_rows_are_kept_and_they_are_the_right_ones(tiny_trunk: GetTrunk) -> None:
    for threads in (1, 2):
        trunk, tokens = tiny_trunk(threads=threads), text(20)
        reference = prefill_logits(trunk, tokens)
        for wanted in ([0], [19], [3, 4, 17], []):
            trunk.make_cache(2)
            rows = rows_of_one(tokens, wanted=wanted)
            trunk.forward(rows)
            for index, row in enumerate(wanted):
                np.testing.assert_array_equal(trunk.logits(index), reference[row])
            with pytest.raises(ValueError, match="no such row"):
                trunk.logits(len(wanted))
            # rows that are not wanted are stored all the same
            np.testing.assert_array_equal(
                wanted_logits(trunk, rows_of_one(tokens[10:], committed=10)), reference[10:], f"wanted {wanted}"
            )


@pytest.mark.parametrize("name", FEW)
def test_order_of_pages_does_not_matter(name: str, tiny_trunk: GetTrunk) -> None:
    trunk, tokens = tiny_trunk(**MODELS[name]), text(60)
    reference = prefill_logits(trunk, tokens)
    for table in ([3, 2, 1, 0], [5, 0, 7, 2]):
        trunk.make_cache(8)
        first = wanted_logits(trunk, rows_of_one(tokens[:37], page_table=table[:3]))
        second = wanted_logits(trunk, rows_of_one(tokens[37:], committed=37, page_table=table))
        np.testing.assert_array_equal(np.concatenate([first, second]), reference)


@pytest.mark.parametrize("name", FEW)
def test_shared_pages(name: str, tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk(**MODELS[name])
    shared, ends = text(32), [text(25, 1), text(9, 2)]
    references = [prefill_logits(trunk, shared + end)[32:] for end in ends]
    trunk.make_cache(8)
    trunk.forward(rows_of_one(shared, page_table=[6, 2]))
    parts = [
        rows_of_one(ends[0], committed=32, page_table=[6, 2, 0, 5]),
        rows_of_one(ends[1], committed=32, page_table=[6, 2, 4]),
    ]
    np.testing.assert_array_equal(wanted_logits(trunk, side_by_side(*parts)), np.concatenate(references))


POISONED: dict[str, dict[str, Any]] = {
    "f32": {"tied": False, "kind": "F32"},
    "f16": {"tied": False, "kind": "F16"},
    "window": {"tied": False, "kind": "F32", "window": WINDOW},
    "f16 cache": {"tied": False, "kind": "F32", "cache": "f16"},
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", POISONED)
def test_what_earlier_texts_left_in_the_slots_is_not_seen(name: str, threads: int, tiny_trunk: GetTrunk) -> None:
    trunk, poison = tiny_trunk(**POISONED[name], threads=threads, poisoned=True), VOCAB_SIZE - 1
    tokens = text(40)
    reference = prefill_logits(trunk, tokens)
    assert np.isfinite(reference).all()
    for sizes in ([40], [1] * 40, [17, 16], [5, 30]):
        trunk.make_cache(4)
        assert np.isnan(wanted_logits(trunk, rows_of_one([poison] * 64))).all()
        found, begin = [], 0
        for size in sizes:
            rows = rows_of_one(tokens[begin : begin + size], committed=begin, page_table=[2, 0, 3])
            found.append(wanted_logits(trunk, rows))
            begin += size
        np.testing.assert_array_equal(np.concatenate(found), reference[:begin])


@pytest.mark.parametrize("name", POISONED)
def test_a_branch_does_not_see_its_siblings(name: str, tiny_trunk: GetTrunk) -> None:
    trunk, poison = tiny_trunk(**POISONED[name], poisoned=True), VOCAB_SIZE - 1
    for committed in (0, 3, 15, 16, 29):
        prefix, branch = text(committed), text(5, 1)
        reference = prefill_logits(trunk, [*prefix, *branch])[committed:]
        trunk.make_cache(4)
        if prefix:
            trunk.forward(rows_of_one(prefix, page_table=range(4)))
        # every second row is a poisoned child of the branch
        tokens = [token for pair in zip(branch, [poison] * 5, strict=True) for token in pair]
        parents = [-1, 0, 0, 2, 2, 4, 4, 6, 6, 8]
        found = wanted_logits(trunk, rows_of_one(tokens, committed=committed, parents=parents, page_table=range(4)))
        np.testing.assert_array_equal(found[::2], reference)
        assert np.isnan(found[1::2]).all()


@pytest.mark.parametrize("name", POISONED)
def test_a_branch_deeper_than_a_page_and_a_window(name: str, tiny_trunk: GetTrunk) -> None:
    """Its ancestors lie one slot off their positions, and the first outside the window, poisoned."""
    trunk, poison = tiny_trunk(**POISONED[name], poisoned=True), VOCAB_SIZE - 1
    for committed in (0, 3, 15, 16):
        prefix, branch = text(committed), text(45, 1)
        if "window" in POISONED[name]:
            branch[0] = poison  # seen by the next rows of its first layer, and by rows further on through those
        reference = prefill_logits(trunk, [*prefix, *branch])[committed:]
        trunk.make_cache(4)
        if prefix:
            trunk.forward(rows_of_one(prefix, page_table=range(4)))
        rows = rows_of_one([7, *branch], committed=committed, parents=[-1, -1, *range(1, 45)], page_table=range(4))
        np.testing.assert_array_equal(wanted_logits(trunk, rows)[1:], reference)
        assert np.isfinite(reference[-1]).all()


@pytest.mark.parametrize("name", ["F32", "f16 cache", "Q8_0", "window"])
def test_moves_happen_all_at_once(name: str, tiny_trunk: GetTrunk) -> None:
    trunk, tokens = tiny_trunk(**MODELS[name]), text(40)
    reference = prefill_logits(trunk, tokens)
    table = np.array([4, 1, 3, 0], np.int32)
    for order in (np.roll(np.arange(36), 1), np.roll(np.arange(36), -1), np.random.default_rng(0).permutation(36)):
        trunk.make_cache(5)
        trunk.forward(rows_of_one(tokens[:36], page_table=table))
        trunk.move(table, list(range(36)), order.tolist())  # scattered, every slot source and destination
        trunk.move(table, order.tolist(), list(range(36)))
        found = wanted_logits(trunk, rows_of_one(tokens[36:], committed=36, page_table=table))
        np.testing.assert_array_equal(found, reference[36:])
        trunk.move(table, [], [])


def test_a_move_changes_what_is_seen(tiny_trunk: GetTrunk) -> None:
    """So that the test above cannot pass because nothing moves."""
    trunk, tokens = tiny_trunk(), text(20)
    reference = prefill_logits(trunk, tokens)
    table = np.array([0, 1], np.int32)
    trunk.move(table, [0], [1])
    assert (wanted_logits(trunk, rows_of_one(tokens[19:], committed=19)) != reference[19:]).any()


def test_a_window_sees_so_many_positions_and_no_more(tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk(kind="F32", window=WINDOW, num_layers=1)
    tokens = text(40)
    reference = prefill_logits(trunk, tokens)
    for position in range(40):
        changed = tokens.copy()
        changed[position] += 1
        differs = (prefill_logits(trunk, changed) != reference).any(axis=1)
        expected = np.zeros(40, np.bool_)
        expected[position : position + WINDOW] = True
        np.testing.assert_array_equal(differs, expected)
