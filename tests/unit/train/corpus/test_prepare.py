"""From sources to a corpus: what is taken, what is dropped, on which side it comes, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from headstart.errors import CheckpointError, ConfigError
from headstart.train.corpus import Corpus, CorpusConfig, Preparing, TokenStore, open_corpus, prepare_corpus


def texts_of(store: TokenStore) -> list[str]:
    """The texts in a store of bytes, in its order."""
    documents = [store.document(index).tolist() for index in range(store.num_documents)]
    assert all(tokens[-1] == 256 for tokens in documents)
    assert [len(tokens) for tokens in documents] == store.lengths.tolist()
    return [bytes(tokens[:-1]).decode() for tokens in documents]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_text_comes_out_once(corpus, texts):
    train, validation = texts_of(corpus.train), texts_of(corpus.validation)
    assert sorted(train + validation) == sorted(texts)
    assert 8 <= len(validation) <= 32  # 20 are expected


def test_the_counts_are_those_of_the_texts(corpus):
    for store in (corpus.train, corpus.validation):
        sizes = [len(text.encode()) for text in texts_of(store)]
        assert (store.num_documents, store.num_bytes, store.num_tokens) == (
            len(sizes), sum(sizes), sum(sizes) + len(sizes),
        )  # fmt: skip
    (source,) = corpus.header.sources
    for side, store in ((source.train, corpus.train), (source.validation, corpus.validation)):
        assert (side.documents, side.tokens, side.bytes) == (store.num_documents, store.num_tokens, store.num_bytes)


def test_shards_are_closed_when_they_are_full(corpus):
    sizes = [shard.tokens for shard in corpus.header.splits["train"].shards]
    assert len(sizes) > 3
    assert all(500 <= size < 600 for size in sizes[:-1])
    assert sum(sizes) == corpus.train.num_tokens


def test_shards_make_no_difference_to_the_documents(corpus, config, tmp_path):
    whole = prepare_corpus(tmp_path / "whole", replace(config, shard_tokens=10**6))
    assert texts_of(whole.train) == texts_of(corpus.train)


def test_a_document_that_is_not_there(corpus):
    for index in (-1, corpus.train.num_documents):
        with pytest.raises(IndexError, match=f"document {index}"):
            corpus.train.document(index)


def test_what_comes_again_is_dropped_and_counted(tmp_path, write_texts):
    first = write_texts(["one", "two", "one", "one"])
    second = write_texts(["two", "three", "one "])
    corpus = prepare_corpus(tmp_path / "out", CorpusConfig(sources=(first, second), validation_share=0))
    assert sorted(texts_of(corpus.train)) == ["one", "one ", "three", "two"]
    assert [source.duplicates for source in corpus.header.sources] == [2, 1]
    assert [source.train.documents for source in corpus.header.sources] == [2, 2]


def test_what_is_no_text_is_dropped_and_counted(tmp_path, write_texts):
    name = write_texts(["one", "", " \n\t", None, "half of a pair: \ud800", "two"])
    corpus = prepare_corpus(tmp_path / "out", CorpusConfig(sources=(name,), validation_share=0))
    assert sorted(texts_of(corpus.train)) == ["one", "two"]
    (source,) = corpus.header.sources
    assert (source.empty, source.undecodable, source.duplicates) == (3, 1, 0)


def test_content_alone_decides_what_is_held_out(corpus, config, texts, tmp_path, write_texts):
    held_out = set(texts_of(corpus.validation))
    others = [f"Another text, of number {number}." for number in range(40)]
    names = (write_texts(others), write_texts(texts[::-1]))
    larger = prepare_corpus(tmp_path / "larger", replace(config, sources=names, seed=99))
    assert set(texts_of(larger.validation)) & set(texts) == held_out
    fewer = prepare_corpus(tmp_path / "fewer", replace(config, validation_share=0.1))
    assert set(texts_of(fewer.validation)) < held_out


def test_the_order_is_that_of_content_and_seed(corpus, config, texts, tmp_path, write_texts):
    order = texts_of(corpus.train)
    assert order != [text for text in texts if text in order]
    backwards = replace(config, sources=(write_texts(texts[:30:-1]), write_texts(texts[30::-1])))
    assert texts_of(prepare_corpus(tmp_path / "backwards", backwards).train) == order
    reseeded = texts_of(prepare_corpus(tmp_path / "reseeded", replace(config, seed=1)).train)
    assert sorted(reseeded) == sorted(order)
    assert reseeded != order


def test_the_same_again_has_the_same_digest(corpus, config, tmp_path):
    again = prepare_corpus(tmp_path / "again", config)
    assert again.digest == corpus.digest == open_corpus(corpus.path).digest
    assert prepare_corpus(tmp_path / "reseeded", replace(config, seed=1)).digest != corpus.digest


def test_what_is_prepared_is_opened_and_not_read_again(corpus, config):
    before = files_of(corpus.path)
    Path(config.sources[0].removeprefix("jsonl:")).unlink()
    assert prepare_corpus(corpus.path, config).digest == corpus.digest
    assert files_of(corpus.path) == before


@pytest.mark.parametrize("change", [{"seed": 1}, {"tokenizer": "bpe:300"}, {"validation_share": 0.5}])
def test_other_settings_need_another_folder(corpus, config, change):
    (name,) = change
    with pytest.raises(ConfigError, match=f"other settings: {name} was"):
        prepare_corpus(corpus.path, replace(config, **change))


def test_a_folder_with_other_things_is_left_alone(tmp_path, config):
    (tmp_path / "train-00000.tokens").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty, and no corpus"):
        prepare_corpus(tmp_path, config)
    assert (tmp_path / "train-00000.tokens").read_text() == "mine"


class StoppedError(Exception):
    pass


def stop_at(moment: int) -> Callable[[Preparing], None]:
    """Lets some tidings of progress pass, and then ends the preparation."""
    left = iter(range(moment))

    def show(progress: Preparing) -> None:
        if next(left, None) is None:
            raise StoppedError

    return show


# it tells of its progress 82 times: before the first text, after each, and at the end
@pytest.mark.parametrize("moment", [0, 1, 40, 81])
def test_what_was_interrupted_is_begun_anew(corpus, config, tmp_path, moment):
    out = tmp_path / "out"
    # the next attempt need not be the same
    for attempt in (config, replace(config, tokenizer="bpe:300", shard_tokens=100)):
        with pytest.raises(StoppedError):
            prepare_corpus(out, attempt, stop_at(moment))
        with pytest.raises(CheckpointError, match="has not finished"):
            open_corpus(out)
    prepare_corpus(out, config)
    assert files_of(out) == files_of(corpus.path)


def test_a_kill_between_the_shards_and_the_header(corpus, config, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:

        def stop(*_: object) -> None:
            raise StoppedError

        patch.setattr("headstart.train.corpus.prepare.write_header", stop)
        with pytest.raises(StoppedError):
            prepare_corpus(out, config)
    assert list(out.glob("*.index"))
    with pytest.raises(CheckpointError, match="has not finished"):
        open_corpus(out)
    # more than this time there will be
    (out / "train-00099.tokens").write_bytes(b"left")
    prepare_corpus(out, config)
    assert files_of(out) == files_of(corpus.path)


def test_progress_tells_of_every_source(tmp_path, write_texts):
    names = (write_texts(["one", "two"]), write_texts(["one"]), write_texts(["three"]))
    told: list[Preparing] = []
    prepare_corpus(tmp_path / "out", CorpusConfig(sources=names), told.append)
    ends = [(progress.source, progress.documents, progress.bytes) for progress in told if progress.done]
    assert ends == [(names[0], 2, 6), (names[1], 0, 0), (names[2], 1, 5)]


def test_progress_tells_of_the_training_of_a_tokenizer(corpus, config, tmp_path):
    told: list[Preparing] = []
    prepare_corpus(tmp_path / "out", replace(config, tokenizer="bpe:300"), told.append)
    read = [progress for progress in told if progress.source == "tokenizer"]
    assert (read[-1].documents, read[-1].bytes, read[-1].done) == (
        corpus.train.num_documents, corpus.train.num_bytes, True,
    )  # fmt: skip


def test_without_a_document_to_learn_from(tmp_path, write_texts):
    with pytest.raises(ConfigError, match=r"no document to learn from \(0 to"):
        prepare_corpus(tmp_path / "out", CorpusConfig(sources=(write_texts(["", " "]),)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": -1}, "seed = -1"),
        ({"seed": 1 << 64}, "between 0 and"),
        ({"validation_share": 1.0}, "validation_share = 1.0"),
        ({"validation_share": float("nan")}, "validation_share = nan"),
        ({"shard_tokens": 0}, "shard_tokens = 0"),
        ({"tokenizer": "bpe:300.5"}, "at least 258"),
    ],
)
def test_settings_out_of_range_are_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        CorpusConfig(sources=("stdlib",), **change)


def test_the_header_keeps_what_was_asked_for(corpus: Corpus, config: CorpusConfig):
    assert open_corpus(corpus.path).header == corpus.header
    assert corpus.header.settings == asdict(config) | {"sources": list(config.sources)}
    assert set(corpus.header.versions) == {"headstart", "python", "numpy", "tokenizers"}
