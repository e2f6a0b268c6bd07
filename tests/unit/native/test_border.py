"""Misuse at the border of the core is a plain error, and leaves the trunk as it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headstart import _native
from headstart.checkpoint import Checkpoint
from headstart.errors import CapacityError, ConfigError, UnsupportedError
from headstart.records import SamplingParams
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.runtime.protocol import Choice, Rows
from headstart.testing.passes import prefill_logits, rows_of_one, side_by_side, wanted_logits

GetTrunk = Callable[..., NativeTrunk]
TOKENS = [5, 6, 7, 8, 9, 10]


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


GOOD = rows_of_one([7, 8, 9, 10], committed=2, page_table=[0])
PAIR = side_by_side(GOOD, rows_of_one([1, 2], committed=2, page_table=[1]))

BAD_ROWS: dict[str, tuple[Rows, str]] = {
    name: (dataclasses.replace(good, **changes), message)
    for name, good, changes, message in [
        ("token below", GOOD, {"tokens": ints(7, -1, 9, 10)}, "token -1 is not in the vocabulary"),
        ("token above", GOOD, {"tokens": ints(7, 300, 9, 10)}, "token 300 is not in the vocabulary"),
        ("position", GOOD, {"positions": ints(2, 3, 5, 6)}, "row 2: its position must be 4"),
        ("first position", GOOD, {"positions": ints(3, 4, 5, 6)}, "row 0: its position must be 2"),
        ("position below", GOOD, {"positions": ints(-2, -1, 0, 1)}, "row 0: its position must be 2"),
        ("itself a parent", GOOD, {"parents": ints(-1, 1, 1, 2)}, "row 1: a parent must stand before"),
        ("parent after child", GOOD, {"parents": ints(-1, 2, 1, 2)}, "row 1: a parent must stand before"),
        ("parent beyond", GOOD, {"parents": ints(-1, 0, 1, 9)}, "row 3: a parent must stand before"),
        ("parent below", GOOD, {"parents": ints(-1, 0, 1, -2)}, "row 3: a parent must stand before"),
        (
            "parent of another sequence",
            PAIR,
            {"parents": ints(-1, 0, 1, 2, -1, 0)},
            "row 5: its parent is of another sequence",
        ),
        ("sequence beyond", GOOD, {"sequences": ints(0, 0, 0, 1)}, "row 3: unknown sequence"),
        ("sequence below", GOOD, {"sequences": ints(-1, 0, 0, 0)}, "row 0: unknown sequence"),
        (
            "sequences out of order",
            PAIR,
            {"sequences": ints(1, 1, 1, 1, 0, 0)},
            "row 4: rows of a sequence must be adjacent",
        ),
        ("page above", GOOD, {"page_tables": [ints(2)]}, "page 2 is not among"),
        ("page below", GOOD, {"page_tables": [ints(-1)]}, "page -1 is not among"),
        ("no page", GOOD, {"page_tables": [ints()]}, "row 0: its slot is past"),
        (
            "slots past the page table",
            GOOD,
            {"committed": ints(13), "positions": ints(13, 14, 15, 16)},
            "row 3: its slot is past",
        ),
        ("committed below", GOOD, {"committed": ints(-1)}, "cannot be negative"),
        (
            "committed past the context",
            GOOD,
            {"committed": ints(512), "positions": ints(512, 513, 514, 515)},
            "position 512 is past the context",
        ),
        (
            "committed past everything",
            GOOD,
            {"committed": ints(2**31 - 1), "positions": ints(*[2**31 - 1] * 4)},
            "is past the context",
        ),
        ("committed of too few", PAIR, {"committed": ints(2)}, "one entry a page table"),
        ("committed of too many", GOOD, {"committed": ints(2, 0)}, "one entry a page table"),
        ("too few positions", GOOD, {"positions": ints(2, 3, 4)}, "differ in length"),
        ("too few parents", GOOD, {"parents": ints(-1, 0, 1)}, "differ in length"),
        ("too few sequences", GOOD, {"sequences": ints(0, 0, 0)}, "differ in length"),
        ("too few tokens", GOOD, {"tokens": ints(7, 8, 9)}, "differ in length"),
        ("wanted out of order", GOOD, {"wanted": ints(1, 0)}, "ascending"),
        ("wanted twice", GOOD, {"wanted": ints(1, 1)}, "ascending"),
        ("wanted above", GOOD, {"wanted": ints(4)}, "ascending"),
        ("wanted below", GOOD, {"wanted": ints(-1)}, "ascending"),
        (
            "no rows",
            GOOD,
            {name: ints() for name in ("tokens", "positions", "parents", "sequences", "wanted")},
            "at least one row",
        ),
    ]
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_break_the_rules(name: str, tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk(threads=2)
    expected = prefill_logits(trunk, TOKENS)
    trunk.make_cache(2)
    before = wanted_logits(trunk, rows_of_one(TOKENS[:2]))
    rows, message = BAD_ROWS[name]
    with pytest.raises(ValueError, match=message):
        trunk.forward(rows)
    np.testing.assert_array_equal(trunk.logits(1), before[1])  # the last good pass still stands
    np.testing.assert_array_equal(wanted_logits(trunk, GOOD), expected[2:])


@pytest.mark.parametrize("field", ["tokens", "positions", "parents", "sequences", "committed", "wanted", "page_tables"])
@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.uint32])
def test_arrays_of_other_types(field: str, dtype: Any, tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk()
    trunk.make_cache(2)
    value = getattr(GOOD, field)
    other = [table.astype(dtype) for table in value] if field == "page_tables" else value.astype(dtype)
    with pytest.raises(TypeError):
        trunk.forward(dataclasses.replace(GOOD, **{field: other}))


def test_arrays_of_other_shapes(tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk()
    trunk.make_cache(2)
    with pytest.raises(TypeError):
        trunk.forward(dataclasses.replace(GOOD, tokens=GOOD.tokens.reshape(2, 2)))
    with pytest.raises(TypeError):
        trunk.forward(dataclasses.replace(GOOD, tokens=None))  # type: ignore[arg-type]


def test_a_pass_without_a_cache(tiny_checkpoint: Callable[..., Checkpoint]) -> None:
    trunk = load_trunk(tiny_checkpoint(), threads=1)
    with pytest.raises(ValueError, match="page 0"):
        trunk.forward(rows_of_one([1]))
    with pytest.raises(ValueError, match="no such row"):
        trunk.logits(0)
    assert prefill_logits(trunk, [1]).shape == (1, 300)


@pytest.mark.parametrize("num_pages", [0, -1])
def test_a_cache_of_nothing(num_pages: int, tiny_trunk: GetTrunk) -> None:
    with pytest.raises(ValueError, match="at least one page"):
        tiny_trunk().make_cache(num_pages)


def test_a_cache_that_no_machine_holds(tiny_checkpoint: Callable[..., Checkpoint]) -> None:
    trunk = load_trunk(tiny_checkpoint(kind="Q4_K", num_layers=5), threads=1, cache="f32")
    trunk.make_cache(1)
    expected = wanted_logits(trunk, rows_of_one(TOKENS))
    with pytest.raises(CapacityError, match="MiB"):
        trunk.make_cache(2**31 - 1)
    np.testing.assert_array_equal(wanted_logits(trunk, rows_of_one(TOKENS)), expected)


@pytest.mark.parametrize(
    ("table", "sources", "destinations"),
    [
        ([0, 1], [0, 1], [0]),
        ([0, 1], [-1], [0]),
        ([0, 1], [0], [-1]),
        ([0, 1], [32], [0]),
        ([0, 1], [0], [32]),
        ([0, 2], [0], [1]),
        ([0, -1], [0], [1]),
        ([], [0], [0]),
    ],
)
def test_moves_that_break_the_rules(
    table: list[int], sources: list[int], destinations: list[int], tiny_trunk: GetTrunk
) -> None:
    trunk = tiny_trunk()
    expected = prefill_logits(trunk, TOKENS)
    trunk.make_cache(2)
    trunk.forward(rows_of_one(TOKENS[:2]))
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        trunk.move(ints(*table), sources, destinations)
    np.testing.assert_array_equal(wanted_logits(trunk, GOOD), expected[2:])


def test_choices_that_break_the_rules(tiny_trunk: GetTrunk) -> None:
    trunk, other = tiny_trunk(), tiny_trunk(kind="F32")
    other.vocab_size = 299
    chooser = trunk.make_chooser(SamplingParams(), 0, (), ())
    foreign = other.make_chooser(SamplingParams(), 0, (), ())
    other.vocab_size = 300
    logits = prefill_logits(trunk, TOKENS)
    for choice in (
        Choice(-1, chooser, 6, ()),
        Choice(6, chooser, 6, ()),
        Choice(0, foreign, 6, ()),
        Choice(0, chooser, 6, (300,)),
        Choice(0, chooser, 6, (-1,)),
    ):
        with pytest.raises(ValueError, match=r"\w+ \w+"):
            trunk.choose([choice])
    assert trunk.choose([]) == ([], [])
    assert trunk.choose([Choice(5, chooser, 6, ())]) == ([int(logits[5].argmax())], [None])


@pytest.mark.parametrize("token", [-1, 300, 2**31 - 1])
def test_tokens_that_were_never_written(token: int, tiny_trunk: GetTrunk) -> None:
    chooser = tiny_trunk().make_chooser(SamplingParams(frequency_penalty=1.0), 0, (), ())
    with pytest.raises((ValueError, IndexError)):
        chooser.extend([token])


def test_unknown_instruction_sets(tiny_checkpoint: Callable[..., Checkpoint]) -> None:
    with pytest.raises(UnsupportedError, match=r"sse2.*portable"):
        load_trunk(tiny_checkpoint(), instruction_set="sse2")


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_numbers_of_threads(threads: int, tiny_checkpoint: Callable[..., Checkpoint]) -> None:
    with pytest.raises(ConfigError, match="between 1 and 1024"):
        load_trunk(tiny_checkpoint(), threads=threads)
    with pytest.raises(ValueError, match="between 1 and 1024"):
        _native.Program(threads, "")


@pytest.mark.parametrize("num_pages", [2**29, 2**40])  # more than memory holds; more than the core can count
def test_a_cache_beyond_all_memory_is_refused(num_pages: int, tiny_trunk: GetTrunk) -> None:
    with pytest.raises(CapacityError, match=str(num_pages)):
        tiny_trunk().make_cache(num_pages)
