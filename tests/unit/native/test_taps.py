"""What a trunk keeps for heads: the layers' outputs of each token, at its slot, at no cost to the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headstart import _native
from headstart.checkpoint import Checkpoint
from headstart.errors import ConfigError
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.testing.numpy_runtime import reference_taps
from headstart.testing.passes import prefill_logits, rows_of_one, wanted_logits

GetCheckpoint = Callable[..., Checkpoint]
TOKENS = np.random.default_rng(3).integers(0, 300, 45).tolist()
PAGES = np.array([3, 0, 5], np.int32)


def load(checkpoint: Checkpoint, taps: tuple[int, ...], **options: Any) -> NativeTrunk:
    trunk = load_trunk(checkpoint, **{"threads": 2, "weights": "f32", **options}, taps=taps)
    trunk.make_cache(6)
    return trunk


@pytest.mark.parametrize("taps", [(0,), (3,), (0, 1, 3), (0, 1, 2, 3)])
def test_they_are_the_layers_outputs(taps: tuple[int, ...], tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="F32", num_layers=3)
    trunk = load(checkpoint, taps)
    trunk.forward(rows_of_one(TOKENS, page_table=PAGES.tolist()))
    found = trunk.taps(PAGES, 0, len(TOKENS))
    expected = reference_taps(checkpoint, TOKENS, taps)
    assert expected.std() > 0.2
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    np.testing.assert_array_equal(trunk.taps(PAGES, 14, 20), found[14:34])
    assert trunk.taps(PAGES, 40, 0).shape == (0, len(taps) * 64)


@pytest.mark.parametrize("weights", ["stored", "f32", "int8"])
@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
def test_logits_have_the_same_bits_without(weights: str, instruction_set: str, tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="F16", num_layers=3)
    options = {"weights": weights, "instruction_set": instruction_set}
    plain = prefill_logits(load(checkpoint, (), **options), TOKENS)
    np.testing.assert_array_equal(prefill_logits(load(checkpoint, (0, 1, 2, 3), **options), TOKENS), plain)


def test_they_have_the_same_bits_however_rows_are_split(tiny_checkpoint: GetCheckpoint) -> None:
    trunk = load(tiny_checkpoint(kind="Q8_0", num_layers=3), (1, 3), weights="stored")
    pages = PAGES.tolist()
    trunk.forward(rows_of_one(TOKENS, page_table=pages))
    at_once = trunk.taps(PAGES, 0, len(TOKENS))
    trunk.make_cache(6)
    for begin, end in [(0, 1), (1, 17), (17, 20), (20, 45)]:
        trunk.forward(rows_of_one(TOKENS[begin:end], committed=begin, page_table=pages, wanted=[]))
    np.testing.assert_array_equal(trunk.taps(PAGES, 0, len(TOKENS)), at_once)


def test_they_move_with_keys_and_values(tiny_checkpoint: GetCheckpoint) -> None:
    trunk = load(tiny_checkpoint(kind="F32", num_layers=3), (0, 2))
    pages = PAGES.tolist()
    trunk.forward(rows_of_one(TOKENS[:14], page_table=pages))
    # three branches of one token, then a child of the last: kept are slots 16 and 17
    wanted_logits(trunk, rows_of_one(TOKENS[14:18], committed=14, parents=[-1, -1, -1, 2], page_table=pages))
    kept = trunk.taps(PAGES, 16, 2)
    trunk.move(PAGES, [16, 17], [14, 15])
    np.testing.assert_array_equal(trunk.taps(PAGES, 14, 2), kept)


def test_page_bytes_count_them(tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="F32", num_layers=3)
    for cache, bytes_of_value in (("f32", 4), ("f16", 2)):
        plain = load(checkpoint, (), cache=cache).page_bytes()
        assert load(checkpoint, (0, 3), cache=cache).page_bytes() == plain + 16 * 2 * 64 * bytes_of_value


def test_beside_a_small_cache_they_are_bf16(tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="F32", num_layers=3)
    found = []
    for cache in ("f32", "f16"):
        trunk = load(checkpoint, (0,), cache=cache)
        trunk.forward(rows_of_one(TOKENS, page_table=PAGES.tolist()))
        found.append(trunk.taps(PAGES, 0, len(TOKENS)))
    np.testing.assert_allclose(found[1], found[0], rtol=2**-8, atol=0)
    assert not np.any(found[1].view(np.uint32) & 0xFFFF)


@pytest.mark.parametrize("taps", [(4,), (-1,), (2, 1), (1, 1)])
def test_layers_that_are_not_there(taps: tuple[int, ...], tiny_checkpoint: GetCheckpoint) -> None:
    with pytest.raises(ConfigError, match="must ascend, from 0"):
        load_trunk(tiny_checkpoint(num_layers=3), taps=taps)


def test_slots_and_pages_that_are_not_there(tiny_checkpoint: GetCheckpoint) -> None:
    trunk = load(tiny_checkpoint(kind="F32", num_layers=3), (0,))
    for first, count, table, message in [
        (47, 2, PAGES, "past the page table"),
        (-1, 2, PAGES, "past the page table"),
        (0, -1, PAGES, "negative"),
        (0, 1, np.array([6], np.int32), "not in the cache"),
    ]:
        with pytest.raises(ValueError, match=message):
            trunk.taps(table, first, count)
