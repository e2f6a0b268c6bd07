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
PAIR = side_by_side(GOOD, rows_of_one([1, 2], page_table=[1]))

BAD_ROWS: dict[str, Rows] = {
    name: dataclasses.replace(good, **changes)
    for name, good, changes in [
        ("token below", GOOD, {"tokens": ints(7, -1, 9, 10)}),
        ("token above", GOOD, {"tokens": ints(7, 300, 9, 10)}),
        ("position", GOOD, {"positions": ints(2, 3, 5, 6)}),
        ("first position", GOOD, {"positions": ints(3, 4, 5, 6)}),
        ("position below", GOOD, {"positions": ints(-2, -1, 0, 1)}),
        ("itself a parent", GOOD, {"parents": ints(-1, 1, 1, 2)}),
        ("parent after child", GOOD, {"parents": ints(-1, 2, 1, 2)}),
        ("parent beyond", GOOD, {"parents": ints(-1, 0, 1, 9)}),
        ("parent below", GOOD, {"parents": ints(-1, 0, 1, -2)}),
        ("parent of another sequence", PAIR, {"parents": ints(-1, 0, 1, 2, -1, 3)}),
        ("sequence beyond", GOOD, {"sequences": ints(0, 0, 0, 1)}),
        ("sequence below", GOOD, {"sequences": ints(-1, 0, 0, 0)}),
        ("sequences out of order", PAIR, {"sequences": ints(0, 1, 0, 0, 1, 1)}),
        ("page above", GOOD, {"page_tables": [ints(2)]}),
        ("page below", GOOD, {"page_tables": [ints(-1)]}),
        ("no page", GOOD, {"page_tables": [ints()]}),
        ("slots past the page table", GOOD, {"committed": ints(13), "positions": ints(13, 14, 15, 16)}),
        ("committed below", GOOD, {"committed": ints(-1)}),
        ("committed past the context", GOOD, {"committed": ints(512), "positions": ints(512, 513, 514, 515)}),
        ("committed past everything", GOOD, {"committed": ints(2**31 - 1), "positions": ints(*[2**31 - 1] * 4)}),
        ("committed of too few", PAIR, {"committed": ints(2)}),
        ("committed of too many", GOOD, {"committed": ints(2, 0)}),
        ("too few positions", GOOD, {"positions": ints(2, 3, 4)}),
        ("too few parents", GOOD, {"parents": ints(-1, 0, 1)}),
        ("too few sequences", GOOD, {"sequences": ints(0, 0, 0)}),
        ("too few tokens", GOOD, {"tokens": ints(7, 8, 9)}),
        ("wanted out of order", GOOD, {"wanted": ints(1, 0)}),
        ("wanted twice", GOOD, {"wanted": ints(1, 1)}),
        ("wanted above", GOOD, {"wanted": ints(4)}),
        ("wanted below", GOOD, {"wanted": ints(-1)}),
        ("no rows", GOOD, {name: ints() for name in ("tokens", "positions", "parents", "sequences", "wanted")}),
    ]
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_break_the_rules(name: str, tiny_trunk: GetTrunk) -> None:
    trunk = tiny_trunk(threads=2)
    expected = prefill_logits(trunk, TOKENS)
    trunk.make_cache(2)
    before = wanted_logits(trunk, rows_of_one(TOKENS[:2]))
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        trunk.forward(BAD_ROWS[name])
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
