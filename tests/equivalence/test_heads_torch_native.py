"""Heads in torch, as they are trained, against the float64 runtime and the native core, where they draft."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from headstart.architectures.heads import HeadsConfig  # noqa: E402
from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import Checkpoint, open_checkpoint  # noqa: E402
from headstart.runtime.native import load_trunk  # noqa: E402
from headstart.runtime.native_heads import load_heads  # noqa: E402
from headstart.runtime.torch_runtime import TextBatch, load_weights  # noqa: E402
from headstart.testing.numpy_heads import reference_heads_logits  # noqa: E402
from headstart.testing.numpy_runtime import reference_taps  # noqa: E402
from headstart.testing.passes import rows_of_one  # noqa: E402
from headstart.testing.tiny_heads import TINY_HEADS, random_heads, tiny_heads_config  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.heads_module import HeadsModule  # noqa: E402

torch.set_num_threads(1)

TOKENS = np.random.default_rng(5).integers(0, 300, 21).astype(np.int32)
VOCABULARY = np.sort(np.random.default_rng(6).permutation(300)[:111]).astype(np.int32)
CASES = [(name, reduced) for name in TINY_HEADS for reduced in (False, True)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", kind="F32", tied=False))


def config_of(name: str, reduced: bool) -> tuple[HeadsConfig, NDArray[np.int32] | None]:
    return tiny_heads_config(name, draft_vocab_size=len(VOCABULARY) if reduced else 0), VOCABULARY if reduced else None


def depth_of(config: HeadsConfig) -> int:
    """An unrolled module is asked for more than it was trained for."""
    return 5 if config.recurrent and config.num_modules < config.depth else config.depth


def torch_logits(
    checkpoint: Checkpoint, config: HeadsConfig, vocabulary: NDArray[np.int32] | None, dtype: torch.dtype
) -> NDArray[np.floating]:
    """Logits [depth, T, V] of random heads; NaN at rows that end no chain."""
    trunk = read_config(checkpoint)[1]
    chosen = None if vocabulary is None else torch.from_numpy(vocabulary.astype(np.int64))
    heads = HeadsModule(config, trunk, load_weights(checkpoint, dtype), chosen).to(dtype)
    values = random_heads(config, trunk)
    row = torch.arange(len(TOKENS))[None]
    batch = TextBatch(torch.from_numpy(TOKENS.astype(np.int64))[None], torch.zeros_like(row), row)
    taps = torch.from_numpy(reference_taps(checkpoint, TOKENS.tolist(), config.taps)).to(dtype)[None]
    found = []
    with torch.no_grad():
        for name, weight in heads.own_weights().items():
            weight.copy_(torch.from_numpy(values[name]))
        for output in heads(batch, taps, depth_of(config)):
            logits = (output.hidden @ output.unembedding.T)[0].numpy()
            found.append(np.where(output.valid.numpy()[0, :, None], logits, np.nan))
    return np.stack(found)


@pytest.mark.parametrize(("name", "reduced"), CASES)
def test_torch_heads_are_the_float64_runtimes(name: str, reduced: bool, checkpoint: Checkpoint) -> None:
    config, vocabulary = config_of(name, reduced)
    weights = random_heads(config, read_config(checkpoint)[1])
    expected = reference_heads_logits(checkpoint, config, weights, vocabulary, TOKENS.tolist(), depth_of(config))
    assert np.nanstd(expected) > 0.5  # or the tolerance would mean nothing
    found = torch_logits(checkpoint, config, vocabulary, torch.float64)
    np.testing.assert_allclose(found, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "reduced"), CASES)
def test_native_heads_are_the_torch_heads(name: str, reduced: bool, checkpoint: Checkpoint) -> None:
    config, vocabulary = config_of(name, reduced)
    pages = np.array([2, 0], np.int32)
    trunk = load_trunk(checkpoint, taps=config.taps, weights="f32", threads=1)
    trunk.make_cache(3)
    trunk.forward(rows_of_one(TOKENS.tolist(), page_table=pages.tolist()))
    heads = load_heads(trunk, checkpoint, config, random_heads(config, trunk.config), vocabulary, "f32")
    expected = torch_logits(checkpoint, config, vocabulary, torch.float32)
    depth = len(expected)
    for root in range(len(TOKENS)):
        # a chain of the text's own tokens from each root on, as far as the text goes
        chain = TOKENS[root + 1 : root + depth].tolist()
        found = heads.logits(pages, TOKENS[root : root + 1], chain, first=root)
        rows = [root + level if config.recurrent else root for level in range(depth)]
        for level, row in enumerate(rows):
            if row < len(TOKENS):
                np.testing.assert_allclose(found[level], expected[level, row], atol=1e-4, rtol=0)
