"""A store of text: what goes in comes out, counts are exact, and nothing foreign or damaged is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headstart.checkpoint import open_checkpoint
from headstart.errors import CheckpointError, ConfigError, UnsupportedError
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.train.repetition import distinct_share
from headstart.train.text_store import Absent, Document, TextHeader, TextSource, TextStore

SOURCE = TextSource(model="aa", tokenizer="bb", chat_template="cc")
HEADER = TextHeader(source=SOURCE, settings={"seed": 3, "lengths": [1, 2]}, categories=("maths", "chat"))


def document(tokens, supervised=None, *, temperature=0.0, seed=1, category="chat") -> Document:
    marks = [True] * len(tokens) if supervised is None else supervised
    return Document(
        tokens=np.array(tokens, np.int32),
        supervised=np.array(marks, np.bool_),
        temperature=temperature,
        seed=seed,
        category=category,
    )


FIRST = document([5, 6, 70000], [False, True, True], temperature=0.5, seed=2**64 - 1, category="maths")
SECOND = document([9], [False])
THIRD = document([1, 2, 3, 4])


def content(documents) -> list[tuple[object, ...]]:
    return [(d.tokens.tolist(), d.supervised.tolist(), d.temperature, d.seed, d.category) for d in documents]


@pytest.fixture
def store(tmp_path: Path) -> TextStore:
    store = TextStore.create(tmp_path / "a" / "text", HEADER)
    store.append([FIRST, Absent.SKIPPED, SECOND])
    store.append([Absent.FAILED, THIRD])
    return store


def shard(store: TextStore, number: int) -> Path:
    return store.path / f"shard-{number:05d}.safetensors"


def test_documents_come_back_in_order(store):
    for opened in (store, TextStore.open(store.path, source=SOURCE)):
        assert content(opened.documents()) == content([FIRST, SECOND, THIRD])
        assert opened.header == HEADER
    (first, *_) = store.documents()
    assert (first.tokens.dtype, first.supervised.dtype) == (np.int32, np.bool_)


def test_counts_are_exact(store):
    opened = TextStore.open(store.path)
    assert opened.counts == store.counts
    assert (opened.counts.num_asked, opened.counts.num_documents) == (5, 3)
    assert (opened.counts.num_failed, opened.counts.num_skipped) == (1, 1)
    assert (opened.num_tokens, opened.num_supervised) == (8, 6)
    written = json.loads((store.path / "text.json").read_text())["counts"]
    assert written["num_asked"] == written["num_documents"] + written["num_failed"] + written["num_skipped"] == 5
    assert (written["num_tokens"], written["num_supervised"]) == (8, 6)


def test_counts_are_taken_from_the_shards_alone(store):
    header = json.loads((store.path / "text.json").read_text())
    header["counts"] = {"num_asked": 3}  # as after an interruption between shard and header
    (store.path / "text.json").write_text(json.dumps(header))
    opened = TextStore.open(store.path)
    assert (opened.counts, opened.num_lost) == (store.counts, 0)


def test_shards_that_are_gone_at_the_end_are_noticed(store):
    assert TextStore.open(store.path).num_lost == 0
    shard(store, 1).unlink()
    opened = TextStore.open(store.path)
    assert (opened.counts.num_asked, opened.num_lost) == (3, 2)
    opened.append([Absent.FAILED, THIRD])
    assert (opened.num_lost, TextStore.open(store.path).num_lost) == (0, 0)


def test_an_unfinished_shard_is_none(store):
    (store.path / "shard-00002.tmp").write_bytes(b"half of")
    opened = TextStore.open(store.path)
    assert opened.counts == store.counts
    opened.append([FIRST])
    assert content(TextStore.open(store.path).documents()) == content([FIRST, SECOND, THIRD, FIRST])


def test_a_shard_may_hold_no_document(store):
    store.append([Absent.SKIPPED, Absent.FAILED])
    opened = TextStore.open(store.path)
    assert (opened.counts.num_asked, opened.counts.num_documents) == (7, 3)


@pytest.mark.parametrize("name", ["model", "tokenizer", "chat_template"])
def test_text_of_another_source_is_refused_by_name(store, name):
    with pytest.raises(CheckpointError, match=f"another {name.replace('_', ' ')} .*other"):
        TextStore.open(store.path, source=replace(SOURCE, **{name: "other"}))


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9, 1.0])
def test_every_altered_byte_is_found_and_the_shard_named(store, place):
    path = shard(store, 1)
    raw = bytearray(path.read_bytes())
    raw[int(place * (len(raw) - 1))] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match="shard-00001"):
        TextStore.open(store.path)


def test_damage_after_opening_is_found(store):
    path = shard(store, 1)
    path.write_bytes(path.read_bytes()[:-1])
    documents = store.documents()
    assert content([next(documents), next(documents)]) == content([FIRST, SECOND])
    with pytest.raises(CheckpointError, match="shard-00001"):
        next(documents)


def test_a_file_of_other_tensors_is_no_shard(store):
    save_file({"tokens": np.zeros(3, np.float16)}, shard(store, 1))
    with pytest.raises(CheckpointError, match=r"shard-00001.*'tokens'"):
        TextStore.open(store.path)


def test_a_missing_shard_is_named(store):
    shard(store, 0).unlink()
    with pytest.raises(CheckpointError, match=r"shard-00000.* is missing"):
        TextStore.open(store.path)


def test_the_last_shards_can_be_written_again(store):
    shard(store, 1).unlink()
    opened = TextStore.open(store.path)
    opened.append([Absent.FAILED, THIRD])
    assert content(TextStore.open(store.path).documents()) == content([FIRST, SECOND, THIRD])


def test_a_shard_is_never_changed(store):
    other = TextStore.open(store.path)
    store.append([FIRST])
    before = shard(store, 2).read_bytes()
    with pytest.raises(CheckpointError, match="another process"):
        other.append([SECOND])
    assert shard(store, 2).read_bytes() == before


def test_a_store_is_made_once(store, tmp_path):
    with pytest.raises(ConfigError, match="already"):
        TextStore.create(store.path, HEADER)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        TextStore.create(tmp_path / "file", HEADER)


def test_what_is_no_store_is_refused(store, tmp_path):
    with pytest.raises(CheckpointError, match=r"no text\.json"):
        TextStore.open(tmp_path)
    header = json.loads((store.path / "text.json").read_text())
    for key, value, kind in (
        ("version", 2, UnsupportedError),
        ("format", "other", CheckpointError),
        ("source", {"model": "aa"}, CheckpointError),
        ("categories", None, CheckpointError),
        ("counts", {"num_asked": "some"}, CheckpointError),
        ("counts", {}, CheckpointError),
    ):
        (store.path / "text.json").write_text(json.dumps(header | {key: value}))
        with pytest.raises(kind):
            TextStore.open(store.path)


def test_what_cannot_be_kept_is_refused(store):
    with pytest.raises(ConfigError, match="'art' is not one of the store's"):
        store.append([document([1], category="art")])
    with pytest.raises(ConfigError, match="without prompts"):
        store.append([])
    with pytest.raises(ConfigError, match="one mark for each token"):
        document([1, 2], [True])
    assert TextStore.open(store.path).counts == store.counts


def test_shards_are_plain_safetensors(store):
    tensors = load_file(shard(store, 0))
    assert tensors["tokens"].tolist() == [5, 6, 70000, 9]
    assert tensors["offsets"].tolist() == [0, 3, 4]
    assert tensors["supervised"].tolist() == [0, 1, 1, 0]
    assert tensors["outcomes"].tolist() == [0, 2, 0]


def test_digests_tell_models_tokenizers_and_templates_apart(tmp_path):
    def source(name: str, **changes: object) -> TextSource:
        return TextSource.of(open_checkpoint(write_tiny_gguf(tmp_path / name, **changes)))

    usual = source("a.gguf")
    assert source("b.gguf") == usual
    other = source("c.gguf", seed=1)
    assert (other.model != usual.model, replace(other, model=usual.model)) == (True, usual)
    words = list(open_checkpoint(tmp_path / "a.gguf").metadata["tokenizer.ggml.tokens"])
    words[298] = "<|other|>"
    assert source("d.gguf", metadata={"tokenizer.ggml.tokens": words}).tokenizer != usual.tokenizer
    # the same vocabulary, but a text is encoded in another way
    assert source("e.gguf", metadata={"tokenizer.ggml.add_bos_token": True}).tokenizer != usual.tokenizer
    plain = source("f.gguf", metadata={"tokenizer.chat_template": "{{ messages[0].content }}"})
    assert (plain.tokenizer, plain.chat_template != usual.chat_template) == (usual.tokenizer, True)


def test_repetition_is_measured_inside_answers():
    looping = document([7, 8] * 20)
    varied = document(range(100, 140))
    assert distinct_share([varied], 4) == 1.0
    assert distinct_share([looping], 4) == 2 / 37
    assert distinct_share([varied, varied], 4) == 0.5
    # three tokens, then three again: no run of four lies in one answer
    assert distinct_share([document([1, 2, 3, 4, 5, 6, 7], [True] * 3 + [False] + [True] * 3)], 4) is None
    assert distinct_share([document([1])], 4) is None
