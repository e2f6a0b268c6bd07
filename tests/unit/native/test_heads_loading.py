"""Heads that do not fit their trunk, or their description, are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headstart import _native
from headstart.checkpoint import Checkpoint
from headstart.errors import CapacityError, CheckpointError, ConfigError, HeadstartError
from headstart.runtime.heads_protocol import HeadsRequest
from headstart.runtime.native import load_trunk
from headstart.runtime.native_heads import load_heads
from headstart.testing.passes import rows_of_one
from headstart.testing.tiny_heads import random_heads, tiny_heads_config

GetCheckpoint = Callable[..., Checkpoint]
VOCABULARY = np.arange(100, 200, dtype=np.int32)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (ConfigError, {"taps": (0, 1)}, r"\[0, 1, 2\].*\[0, 1\].*load the trunk with these taps"),
        (ConfigError, {"vocabulary": None}, "guess 100 tokens of the vocabulary, but 0 are named"),
        (ConfigError, {"vocabulary": VOCABULARY[:99]}, "but 99 are named"),
        (CheckpointError, {"vocabulary": VOCABULARY + 150}, "token 300; the trunk's ids are 0 to 299"),
        (CheckpointError, {"vocabulary": VOCABULARY - 101}, "token -1"),
        (CheckpointError, {"vocabulary": np.repeat(VOCABULARY[:50], 2)}, "token 100 more than once"),
        (ConfigError, {"weight_format": "int4"}, "'int4': it must be one of int8, bf16, f32"),
        (CheckpointError, {"without": "fuse"}, "description asks for: fuse"),
        (CheckpointError, {"with_": "fuse.bias"}, "no place in their description: fuse.bias"),
        (
            CheckpointError,
            {"reshaped": "fuse"},
            r"'fuse' has shape \[192, 64\]; their description asks for \[64, 192\]",
        ),
    ],
)
def test_what_does_not_fit(
    kind: type[HeadstartError], changes: dict[str, Any], message: str, tiny_checkpoint: GetCheckpoint
) -> None:
    checkpoint = tiny_checkpoint()
    config = tiny_heads_config("eagle3", draft_vocab_size=100)
    trunk = load_trunk(checkpoint, taps=changes.pop("taps", config.taps), threads=1)
    weights = random_heads(config, trunk.config)
    if name := changes.pop("without", None):
        del weights[name]
    if name := changes.pop("with_", None):
        weights[name] = np.zeros(3, np.float32)
    if name := changes.pop("reshaped", None):
        weights[name] = weights[name].T
    options = {"vocabulary": VOCABULARY, "weight_format": "int8", **changes}
    with pytest.raises(kind, match=message):
        load_heads(trunk, checkpoint, config, weights, **options)


def test_heads_outlive_a_change_of_the_cache(tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint()
    config = tiny_heads_config("eagle3")
    trunk = load_trunk(checkpoint, taps=config.taps, threads=1)
    heads = load_heads(trunk, checkpoint, config, random_heads(config, trunk.config))
    text = np.arange(20, dtype=np.int32)
    found = []
    for num_pages in (2, 5):
        trunk.make_cache(num_pages)
        trunk.forward(rows_of_one(text.tolist()))
        pages = np.arange(2, dtype=np.int32)
        found += heads.draft([HeadsRequest(page_table=pages, first=0, tokens=text, max_nodes=9, max_depth=3)])
    assert found[0] == found[1]


def test_a_cache_beyond_memory(tiny_checkpoint: GetCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tiny_checkpoint()
    config = tiny_heads_config("eagle3")
    trunk = load_trunk(checkpoint, taps=config.taps, threads=1)
    heads = load_heads(trunk, checkpoint, config, random_heads(config, trunk.config))
    monkeypatch.setattr(heads, "_native", _Exhausted())
    with pytest.raises(CapacityError, match="fewer cached tokens"):
        heads.draft([])


class _Exhausted:
    def draft(self, jobs: object) -> None:
        raise MemoryError


def test_bytes(tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="Q8_0")
    config = tiny_heads_config("eagle3", draft_vocab_size=96)
    trunk = load_trunk(checkpoint, taps=config.taps, threads=1)
    heads = load_heads(trunk, checkpoint, config, random_heads(config, trunk.config), np.arange(96, dtype=np.int32))
    # 16 slots of keys and values of two heads, and of one state, all in two bytes
    assert heads.page_bytes() == 16 * (2 * 2 * 16 + 64) * 2
    # 34 bytes for 32 weights: queries, keys, values over both halves of the input; output; gate, up, down; unembedding
    # (96 inputs are three groups, which take the room of four)
    block = (128 * 128 + 64 * 64 + 2 * 96 * 64 + 64 * 128 + 96 * 64) * 34 // 32
    fuse = 3 * 64 * 64 * 34 // 32
    assert heads.draft_bytes(1) == block + fuse
    assert heads.draft_bytes(3) == 3 * block + fuse


def test_stages_that_do_not_fit_together(tiny_checkpoint: GetCheckpoint) -> None:
    trunk = load_trunk(tiny_checkpoint(), threads=1).native
    for stages, vocabulary, message in [
        ([], [], "no stage"),
        ([(load_trunk(tiny_checkpoint(), threads=1).native, 0, -1, True)], [], "other threads"),
        ([(trunk, 1, -1, True)], [], "a store to read"),
        ([(trunk, 0, 1, True)], [], "the width of a store"),
        ([(trunk, 0, -1, True)], [1, 2], "one id for each logit"),
        ([(trunk, 0, -1, True)], [*range(299), 300], "an id of the vocabulary"),
    ]:
        with pytest.raises(ValueError, match=message):
            _native.Heads(trunk=trunk, stages=stages, recurrent=False, vocabulary=vocabulary)
