"""Windows: against a naive account of what packing is, and as a function of the step alone."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.errors import ConfigError
from headstart.train.corpus import CorpusWindows, PackedWindows, TokenStore, validation_windows

ARRAYS = ("tokens", "documents", "positions", "supervised")


def numbered_store(lengths: Sequence[int], shard_sizes: Sequence[int] = ()) -> TokenStore:
    """Documents in which every token is another number, so that a token says where it stands."""
    ends = np.cumsum(lengths)
    tokens = np.arange(ends[-1] if len(lengths) else 0, dtype=np.uint32)
    cuts = [int(ends[number - 1]) for number in np.cumsum(shard_sizes).tolist()]
    index = np.stack([ends - lengths, lengths], axis=1).astype(np.int64)
    return TokenStore(np.split(tokens, cuts), index, num_bytes=0)


def place_of(lengths: Sequence[int], token: int) -> tuple[int, int]:
    """The document of a numbered token, and its place there."""
    document = 0
    while token >= lengths[document]:
        token -= lengths[document]
        document += 1
    return document, token


def require_packed(lengths: Sequence[int], windows: PackedWindows) -> None:
    """Walk along every row token by token, as if by hand."""
    for row in range(len(windows)):
        piece, position, before = 0, 0, None
        for column, token in enumerate(windows.tokens[row].tolist()):
            document, place = place_of(lengths, token)
            if before is not None:
                last_document, last_place = before
                if last_place + 1 == lengths[last_document]:
                    assert place == 0, "after a document's end another begins"
                    piece, position = piece + 1, 0
                else:
                    assert (document, place) == (last_document, last_place + 1), "a document is never torn in a window"
                    position += 1
            assert (windows.documents[row, column], windows.positions[row, column]) == (piece, position)
            before = (document, place)
    assert windows.supervised.all()


def epoch(windows: CorpusWindows, number: int) -> np.ndarray:
    """The tokens of all windows of an epoch, by batches of one window."""
    count = windows.windows_per_epoch
    return np.concatenate([windows.batch(number * count + step).tokens for step in range(count)])


def same(first: PackedWindows, second: PackedWindows) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ARRAYS)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    window=st.integers(2, 20),
    batch=st.integers(1, 5),
    seed=st.integers(0, 5),
)
def test_packing_is_what_a_naive_walk_says(lengths: list[int], window: int, batch: int, seed: int) -> None:
    store = numbered_store(lengths)
    windows = CorpusWindows(store, window, batch, seed)
    for step in range(3):
        found = windows.batch(step)
        assert [getattr(found, name).dtype.name for name in ARRAYS] == ["int32", "int32", "int32", "bool"]
        assert {getattr(found, name).shape for name in ARRAYS} == {(batch, window)}
        require_packed(lengths, found)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12), window=st.integers(2, 20), number=st.integers(0, 3)
)
def test_an_epoch_has_every_token_once(lengths: list[int], window: int, number: int) -> None:
    found = epoch(CorpusWindows(numbered_store(lengths), window, 1, seed=3), number)
    counts = Counter(found.flatten().tolist())
    assert set(counts) == set(range(sum(lengths)))
    # but for what fills the last window up
    assert sum(counts.values()) - len(counts) < window
    if sum(lengths) >= window:
        assert max(counts.values()) <= 2


def test_what_a_window_cuts_off_begins_another() -> None:
    lengths = [25, 3, 40, 7, 21]  # 12 windows of 8, so none is filled up
    rows = epoch(CorpusWindows(numbered_store(lengths), 8, 1, seed=1), 0).tolist()
    begins = {row[0] for row in rows}
    cut = [row[-1] for row in rows if place_of(lengths, row[-1])[1] + 1 < lengths[place_of(lengths, row[-1])[0]]]
    assert len(cut) >= 8
    assert {token + 1 for token in cut} <= begins


def test_epochs_and_seeds_order_documents_and_windows_anew() -> None:
    lengths = [10] * 50
    store = numbered_store(lengths)
    first, second = CorpusWindows(store, 10, 1, seed=0), CorpusWindows(store, 10, 1, seed=1)
    orders = [epoch(windows, number)[:, 0].tolist() for windows in (first, second) for number in (0, 1)]
    assert all(sorted(order) == list(range(0, 500, 10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_epochs_lay_other_documents_side_by_side() -> None:
    windows = CorpusWindows(numbered_store([5] * 50), 10, 1, seed=0)
    neighbours = [{tuple(row) for row in epoch(windows, number)[:, [0, 5]].tolist()} for number in (0, 1)]
    assert len(neighbours[0] & neighbours[1]) < 5  # of 25 pairs


def test_a_batch_is_of_many_documents() -> None:
    lengths = [1000] * 20
    windows = CorpusWindows(numbered_store(lengths), 10, 16, seed=0)
    for step in range(10):
        documents = {place_of(lengths, token)[0] for token in windows.batch(step).tokens[:, 0].tolist()}
        assert len(documents) >= 7  # as many as chance gives, not one or two that lie in a row


def test_a_step_does_not_depend_on_those_before() -> None:
    store = numbered_store([9, 4, 17, 30, 2])
    one_after_another = CorpusWindows(store, 6, 4, seed=5)
    batches = [one_after_another.batch(step) for step in range(12)]
    for step in (11, 0, 7, 7, 3):
        assert same(CorpusWindows(store, 6, 4, seed=5).batch(step), batches[step])
        assert same(one_after_another.batch(step), batches[step])


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
def test_ranks_share_out_the_batch(world_size: int) -> None:
    store = numbered_store([9, 4, 17, 30, 2])
    ranks = [CorpusWindows(store, 6, 6, seed=5, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in range(5):
        whole = CorpusWindows(store, 6, 6, seed=5).batch(step)
        parts = [windows.batch(step) for windows in ranks]
        joined = PackedWindows(*(np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS))
        assert same(joined, whole)


def test_shards_make_no_difference() -> None:
    lengths = [9, 4, 17, 30, 2]
    whole, parted = (CorpusWindows(numbered_store(lengths, sizes), 6, 6, seed=5) for sizes in ((), (1, 2, 1)))
    assert all(same(whole.batch(step), parted.batch(step)) for step in range(6))


def test_a_corpus_shorter_than_a_window_goes_round() -> None:
    found = CorpusWindows(numbered_store([3]), 8, 2, seed=0).batch(4)
    assert found.tokens.tolist() == [[0, 1, 2, 0, 1, 2, 0, 1]] * 2
    assert found.documents.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2]] * 2


def test_the_windows_are_for_ever() -> None:
    # a run that is resumed after an update must find the windows that it left
    expected = [[5, 6, 0, 1], [2, 3, 4, 7], [8, 9, 10, 5]]
    assert CorpusWindows(numbered_store([5, 2, 4]), 4, 3, seed=7).batch(1).tokens.tolist() == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"window": 1}, "window = 1"),
        ({"batch_windows": 0}, "batch_windows = 0"),
        ({"world_size": 3}, "batch_windows = 4 for 3 processes"),
        ({"world_size": 2, "rank": 2}, "rank 2 of 2"),
        ({"store": numbered_store([])}, "no document to train on"),
    ],
)
def test_what_makes_no_batches_is_refused(changes: dict[str, object], words: str) -> None:
    arguments = {"store": numbered_store([9]), "window": 4, "batch_windows": 4, "seed": 0} | changes
    with pytest.raises(ConfigError, match=words):
        CorpusWindows(**arguments)


def test_steps_begin_at_0() -> None:
    with pytest.raises(ConfigError, match="step = -1"):
        CorpusWindows(numbered_store([9]), 4, 4, seed=0).batch(-1)


def test_validation_is_fixed_and_spread_over_the_documents() -> None:
    lengths = [30, 5, 21, 44, 3]  # 103 tokens, 25 windows of 4
    windows = validation_windows(numbered_store(lengths), 4, 5)
    assert windows.tokens.tolist() == [list(range(begin, begin + 4)) for begin in (0, 20, 40, 60, 80)]
    require_packed(lengths, windows)


def test_no_validation_token_is_counted_twice() -> None:
    windows = validation_windows(numbered_store([30, 5, 21, 44, 3]), 4, 1000)
    assert windows.tokens.flatten().tolist() == list(range(100))


def test_a_store_that_fills_no_window_cannot_validate() -> None:
    with pytest.raises(ConfigError, match="have 5 tokens, and a window has 6"):
        validation_windows(numbered_store([3, 2]), 6, 1)
    with pytest.raises(ConfigError, match="count = 0"):
        validation_windows(numbered_store([3, 2]), 2, 0)


def test_the_text_itself_stays_on_disk(tmp_path: Path) -> None:
    count, length = 1000, 2_000_000
    path = tmp_path / "train-00000.tokens"
    with path.open("wb") as file:
        file.truncate(2 * count * length)  # 4 GB without a block on disk
    begins = np.arange(count, dtype=np.int64) * length
    index = np.stack([begins, np.full(count, length)], axis=1)
    tracemalloc.start()
    store = TokenStore([np.memmap(path, "<u2", mode="r")], index, num_bytes=0)
    windows = CorpusWindows(store, 512, 4, seed=0)
    for step in (0, 123_456, 10**7):
        windows.batch(step)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
