"""Taps on disk: those of the trunk, whole or not at all, however reading was interrupted and whatever lay there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headstart.errors import CapacityError, CheckpointError  # noqa: E402
from headstart.runtime.native import load_trunk  # noqa: E402
from headstart.testing.numpy_runtime import reference_logits, reference_taps  # noqa: E402
from headstart.train import taps as taps_module  # noqa: E402
from headstart.train.heads_loss import TrainingBatch  # noqa: E402
from headstart.train.packing import pack  # noqa: E402
from headstart.train.taps import TapCache, TapReader, TrunkHead  # noqa: E402
from headstart.train.text_shard import Document  # noqa: E402

LAYERS = (0, 1, 2)
WIDTH = 64
LENGTHS = [9, 5, 1, 14, 7]


class CountingReader:
    """Knows which texts were run."""

    def __init__(self, reader: TapReader) -> None:
        self.reader = reader
        self.texts: list[list[int]] = []

    def read(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.texts.append(tokens.tolist())
        return self.reader.read(tokens)


@pytest.fixture
def reader(lab: Any) -> CountingReader:
    return CountingReader(TapReader(load_trunk(lab.checkpoint, taps=LAYERS, weights="f32", threads=1), 600))


@pytest.fixture
def head(lab: Any) -> TrunkHead:
    return TrunkHead(
        final_norm=lab.weights["final_norm"].float(), norm_eps=1e-5, unembedding=lab.unembedding.bfloat16()
    )


@pytest.fixture
def open_cache(reader: CountingReader, head: TrunkHead, tmp_path: Path) -> Callable[..., TapCache]:
    def get(documents: Sequence[Document], key: str = "key") -> TapCache:
        return TapCache(tmp_path / "taps", documents, reader, head, WIDTH * len(LAYERS), key)

    return get


def read_all(cache: TapCache, documents: Sequence[Document]) -> None:
    while cache.num_read < len(documents):
        cache.read_next()


def batch_of(cache: TapCache, documents: Sequence[Document], columns: slice = slice(0, 3 * WIDTH)) -> TrainingBatch:
    windows = pack(documents, range(len(documents)), 16)
    return cache.batch(windows, range(len(windows)), columns)


def assert_equal(found: TrainingBatch, expected: TrainingBatch) -> None:
    for name in ("supervised", "taps", "trunk_states", "log_normaliser", "likeliest"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert torch.equal(found.text.tokens, expected.text.tokens)


def test_taps_are_those_of_the_trunk_at_each_documents_place(lab: Any, open_cache: Any) -> None:
    documents = lab.documents(LENGTHS)
    cache = open_cache(documents)
    assert cache.read_next() == LENGTHS[0]
    read_all(cache, documents)
    windows = pack(documents, range(len(documents)), 16)
    batch = cache.batch(windows, range(len(windows)), slice(0, 3 * WIDTH))
    for index, pieces in enumerate(windows.pieces):
        for piece in pieces:
            inside = slice(piece.place, piece.place + piece.length)
            tokens = documents[piece.document].tokens.tolist()
            expected = reference_taps(lab.checkpoint, tokens, LAYERS)
            # what is kept is bfloat16
            np.testing.assert_allclose(batch.taps[index, inside].float().numpy(), expected, rtol=0.005, atol=0.001)
            logits = reference_logits(lab.checkpoint, tokens)
            normaliser = np.log(np.exp(logits).sum(axis=1))
            np.testing.assert_allclose(batch.log_normaliser[index, inside].numpy(), normaliser, rtol=0.01)
            said = batch.likeliest[index, inside].numpy()
            np.testing.assert_allclose(logits[np.arange(len(said)), said], logits.max(axis=1), atol=0.1)
            states = batch.trunk_states[index, inside].double() @ lab.unembedding.T
            np.testing.assert_allclose(states.numpy(), logits, atol=0.1)


def test_columns_are_those_of_the_layers_asked_for(lab: Any, open_cache: Any) -> None:
    documents = lab.documents(LENGTHS)
    cache = open_cache(documents)
    read_all(cache, documents)
    whole, middle = batch_of(cache, documents), batch_of(cache, documents, slice(WIDTH, 2 * WIDTH))
    assert torch.equal(middle.taps, whole.taps[..., WIDTH : 2 * WIDTH])
    assert torch.equal(middle.trunk_states, whole.trunk_states)  # of the last layer, whatever the heads read


def test_a_long_text_is_run_in_parts_as_if_at_once(lab: Any, open_cache: Any) -> None:
    documents = lab.documents([500])
    cache = open_cache(documents)
    read_all(cache, documents)
    windows = pack(documents, [0], 500)
    found = cache.batch(windows, [0], slice(0, 3 * WIDTH)).taps[0].float().numpy()
    expected = reference_taps(lab.checkpoint, documents[0].tokens.tolist(), LAYERS)
    np.testing.assert_allclose(found, expected, rtol=0.005, atol=0.005)


@pytest.mark.parametrize("stops", [[1], [2, 2, 4], [1, 2, 3, 4], [5]])
def test_reading_that_is_interrupted_anywhere_goes_on(
    stops: list[int], lab: Any, open_cache: Any, reader: CountingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noted at every second document; what came after the last note is read again, nothing else is."""
    monkeypatch.setattr(taps_module, "_SAVE_EVERY", 2)
    documents = lab.documents(LENGTHS)
    for stop in stops:
        cache = open_cache(documents)
        while cache.num_read < stop:
            cache.read_next()
    cache = open_cache(documents)
    assert cache.num_read == (5 if stops[-1] == 5 else stops[-1] // 2 * 2)
    read_all(cache, documents)
    found = batch_of(cache, documents)
    assert len(reader.texts) <= len(documents) + len(stops)
    reader.texts.clear()
    read_all(open_cache(documents), documents)
    assert not reader.texts
    fresh = open_cache(documents, "another key")
    read_all(fresh, documents)
    assert_equal(found, batch_of(fresh, documents))


def test_text_that_grows_is_read_on(lab: Any, open_cache: Any, reader: CountingReader) -> None:
    documents = lab.documents(LENGTHS)
    few = open_cache(documents[:2])
    read_all(few, documents[:2])
    before = batch_of(few, documents[:2])
    reader.texts.clear()
    more = open_cache(documents)
    read_all(more, documents)
    assert [len(text) for text in reader.texts] == LENGTHS[2:]
    assert_equal(batch_of(more, documents[:2]), before)


def test_another_text_under_the_same_key_starts_anew(lab: Any, open_cache: Any, reader: CountingReader) -> None:
    documents = lab.documents(LENGTHS)
    read_all(open_cache(documents), documents)
    reader.texts.clear()
    other = [documents[1], *documents[1:]]
    assert open_cache(other).num_read == 0
    fewer = open_cache(documents[:3])  # the other cache has removed what was known
    assert fewer.num_read == 0


def test_another_key_starts_anew_and_ends_the_old_one(lab: Any, open_cache: Any, reader: CountingReader) -> None:
    """Even if it was interrupted before it noted anything: what it wrote lies where the old taps lay."""
    documents = lab.documents(LENGTHS)
    old = open_cache(documents, "old")
    read_all(old, documents)
    expected = batch_of(old, documents)
    new = open_cache(list(reversed(documents)), "new")
    assert new.num_read == 0
    new.read_next()
    again = open_cache(documents, "old")
    read_all(again, documents)
    assert_equal(batch_of(again, documents), expected)


def test_what_was_not_read_is_not_given_out_as_zeros(lab: Any, open_cache: Any) -> None:
    documents = lab.documents(LENGTHS)
    cache = open_cache(documents)
    cache.read_next()
    with pytest.raises(AssertionError, match="not read"):
        batch_of(cache, documents)


def test_a_trunk_that_says_nan_is_named(
    lab: Any, open_cache: Any, head: TrunkHead, reader: Any, tmp_path: Path
) -> None:
    documents = lab.documents(LENGTHS)
    broken = replace(head, final_norm=torch.full_like(head.final_norm, torch.nan))
    cache = TapCache(tmp_path / "broken", documents, reader, broken, 3 * WIDTH, "key")
    with pytest.raises(CheckpointError, match="document 0 is not finite"):
        cache.read_next()
    assert cache.num_read == 0


def test_a_disk_without_room_is_noticed_before_it_is_full(
    lab: Any, open_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = lab.documents(LENGTHS)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(CapacityError, match="Take less text"):
        open_cache(documents)
