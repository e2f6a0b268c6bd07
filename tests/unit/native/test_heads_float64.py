"""Heads of every kind against the float64 runtime, depth by depth, with the text's own tokens fed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headstart.checkpoint import Checkpoint
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.runtime.native_heads import NativeHeads, load_heads
from headstart.testing.numpy_heads import reference_heads_logits
from headstart.testing.passes import rows_of_one
from headstart.testing.tiny_heads import TINY_HEADS, random_heads, tiny_heads_config

GetCheckpoint = Callable[..., Checkpoint]
TOKENS = np.random.default_rng(5).integers(0, 300, 36).astype(np.int32)
PAGES = np.array([4, 1, 3], np.int32)
VOCABULARY = np.random.default_rng(6).permutation(300)[:111].astype(np.int32)


def load(
    checkpoint: Checkpoint, name: str, vocabulary: NDArray[np.int32] | None = None, **options: Any
) -> tuple[NativeTrunk, NativeHeads]:
    """Heads in f32 on a trunk that has run the text."""
    config = tiny_heads_config(name, draft_vocab_size=0 if vocabulary is None else len(vocabulary))
    trunk = load_trunk(checkpoint, taps=config.taps, weights="f32", **{"threads": 2, **options})
    trunk.make_cache(5)
    trunk.forward(rows_of_one(TOKENS.tolist(), page_table=PAGES.tolist()))
    return trunk, load_heads(trunk, checkpoint, config, random_heads(config, trunk.config), vocabulary, "f32")


def all_logits(heads: NativeHeads, depth: int, *, recurrent: bool, vocab_size: int) -> NDArray[np.float32]:
    """Logits [depth, T, V] for chains that begin at every token, laid out as the reference lays them out."""
    found = np.full((depth, len(TOKENS), vocab_size), np.nan, np.float32)
    for root in range(len(TOKENS)):
        # each token is run when its turn comes, so that all before it were run one by one
        chain = TOKENS[root + 1 : root + depth].tolist()
        logits = heads.logits(PAGES, TOKENS[root : root + 1], chain, first=root)
        for level, row in enumerate(logits):
            found[level, root + level if recurrent else root] = row
    return found


@pytest.mark.parametrize("vocabulary", [None, VOCABULARY], ids=["whole", "reduced"])
@pytest.mark.parametrize("name", TINY_HEADS)
def test_every_depth(name: str, vocabulary: NDArray[np.int32] | None, tiny_checkpoint: GetCheckpoint) -> None:
    checkpoint = tiny_checkpoint(kind="F32", tied=vocabulary is None)
    trunk, heads = load(checkpoint, name, vocabulary)
    # an unrolled module may be asked for more than it was trained for
    depth = min(heads.max_depth, 5)
    config = tiny_heads_config(name, draft_vocab_size=0 if vocabulary is None else len(vocabulary))
    weights = random_heads(config, trunk.config)
    expected = reference_heads_logits(checkpoint, config, weights, vocabulary, TOKENS.tolist(), depth)
    assert np.nanstd(expected) > 0.5  # or the tolerance would mean nothing
    found = all_logits(heads, depth, recurrent=config.recurrent, vocab_size=expected.shape[2])
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("weight_format", "tolerance"), [("int8", 0.5), ("bf16", 0.4)])
@pytest.mark.parametrize("name", ["eagle3", "medusa"])
def test_other_formats_come_near(
    name: str, weight_format: Any, tolerance: float, tiny_checkpoint: GetCheckpoint
) -> None:
    checkpoint = tiny_checkpoint(kind="Q8_0")
    config = tiny_heads_config(name, draft_vocab_size=len(VOCABULARY))
    trunk = load_trunk(checkpoint, taps=config.taps, threads=2)
    trunk.make_cache(5)
    trunk.forward(rows_of_one(TOKENS.tolist(), page_table=PAGES.tolist()))
    weights = random_heads(config, trunk.config)
    heads = load_heads(trunk, checkpoint, config, weights, VOCABULARY, weight_format)
    expected = reference_heads_logits(checkpoint, config, weights, VOCABULARY, TOKENS.tolist())
    root = len(TOKENS) - 3
    found = heads.logits(PAGES, TOKENS[: root + 1], TOKENS[root + 1 :].tolist())
    for level in range(3):
        row = root + level if name == "eagle3" else root
        np.testing.assert_allclose(found[level], expected[level, row], atol=tolerance, rtol=0)
