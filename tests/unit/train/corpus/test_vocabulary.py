"""Tokenizers of a corpus: text comes back, and the end of a text stands at its end alone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from headstart.checkpoint import open_checkpoint
from headstart.checkpoint.huggingface_writing import tokenizer_files, write_model_folder
from headstart.errors import CheckpointError, ConfigError
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.train.corpus import CorpusConfig, prepare_corpus
from headstart.train.corpus.vocabulary import TextEncoder, read_tokenizer, write_tokenizer

HARD = (
    "Hello world, it's 2026.\n\n\tdef f(x):  return x_1  # naïve, привет, 你好, 🙂!?",
    " e\u0301 and é, a NUL \0, a \ufeff, \u2028\x85 and \r\n",
    "it says <|endoftext|> in the midst",
    "<|endoftext|>",
    "\U0010ffff",
    " ",
)


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("bytes") / "tokenizer", "bytes", lambda: iter(()))


@pytest.fixture(scope="module")
def bpe_tokenizer(tmp_path_factory, texts):
    return write_tokenizer(tmp_path_factory.mktemp("bpe") / "tokenizer", "bpe:290", lambda: iter(texts))


def test_bytes_are_their_own_tokens(byte_tokenizer):
    assert (byte_tokenizer.vocab_size, byte_tokenizer.end_ids) == (257, (256,))
    assert [byte_tokenizer.token_bytes(token_id) for token_id in range(256)] == [bytes([byte]) for byte in range(256)]
    assert byte_tokenizer.is_special(256)
    assert [token_id for token_id in range(256) if byte_tokenizer.is_special(token_id)] == []


@pytest.mark.parametrize("text", [text for text in HARD if "<|" not in text])
def test_the_projects_tokenizer_reads_bytes_as_the_corpus_does(byte_tokenizer, text):
    assert byte_tokenizer.encode(text) == list(text.encode())
    (tokens,) = TextEncoder(byte_tokenizer).encode([text])
    assert tokens.tolist() == [*text.encode(), 256]


def test_torn_characters_come_together_again(byte_tokenizer):
    raw = "naïve 🙂".encode()
    stream = byte_tokenizer.stream()
    assert "".join(stream.push([byte]) for byte in raw) + stream.finish() == "naïve 🙂"
    assert byte_tokenizer.decode(raw[3:]) == "�ve 🙂"
    assert byte_tokenizer.decode(raw[:-1]) == "naïve �"
    assert byte_tokenizer.decode([0xFF, 0x41, 0xC3]) == "�A�"


@pytest.mark.parametrize("name", ["byte_tokenizer", "bpe_tokenizer"])
def test_texts_come_back(request, name):
    tokenizer = request.getfixturevalue(name)
    for text, tokens in zip(HARD, TextEncoder(tokenizer).encode(HARD), strict=True):
        *inner, end = tokens.tolist()
        assert end == tokenizer.end_ids[0]
        assert end not in inner, "a text that spells it out does not end there"
        assert b"".join(map(tokenizer.token_bytes, inner)) == text.encode()


def test_a_trained_tokenizer_merges_what_is_frequent(bpe_tokenizer, texts):
    assert bpe_tokenizer.vocab_size == 290
    (tokens,) = TextEncoder(bpe_tokenizer).encode([texts[0]])
    assert len(tokens) < len(texts[0]) / 2
    assert bpe_tokenizer.encode(texts[0]) == tokens[:-1].tolist()


def test_training_twice_gives_the_same(bpe_tokenizer, texts, tmp_path):
    again = write_tokenizer(tmp_path / "tokenizer", "bpe:290", lambda: iter(texts))
    assert again.digest() == bpe_tokenizer.digest()


def test_nothing_is_learnt_from_what_is_held_out(corpus, config, tmp_path):
    learnt, held_out = (
        [bytes(store.document(index)[:-1].astype(np.uint8)).decode() for index in range(store.num_documents)]
        for store in (corpus.train, corpus.validation)
    )
    prepared = prepare_corpus(tmp_path / "bpe", CorpusConfig(**corpus_settings(corpus) | {"tokenizer": "bpe:400"}))
    digests = [
        write_tokenizer(tmp_path / str(place), "bpe:400", lambda texts=texts: iter(texts)).digest()
        for place, texts in enumerate((learnt, learnt + held_out))
    ]
    assert prepared.header.tokenizer_digest == digests[0] != digests[1]


def corpus_settings(corpus):
    return dict(corpus.header.settings) | {"sources": tuple(corpus.header.settings["sources"])}


def test_bytes_of_tokens_add_up_to_those_of_the_text(config, tmp_path):
    for choice in ("bytes", "bpe:300"):
        corpus = prepare_corpus(tmp_path / choice, CorpusConfig(sources=config.sources, tokenizer=choice))
        stores = (corpus.train, corpus.validation)
        for store in stores:
            documents = [store.document(index) for index in range(store.num_documents)]
            assert sum(corpus.token_bytes[tokens].sum() for tokens in documents) == store.num_bytes
        assert corpus.token_bytes[corpus.end_id] == 0
        assert len(corpus.token_bytes) == corpus.vocab_size


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


def test_a_models_tokenizer_is_taken(model, config, texts, tmp_path):
    corpus = prepare_corpus(tmp_path / "out", CorpusConfig(sources=config.sources, tokenizer=str(model)))
    tokenizer = open_checkpoint(model).tokenizer()
    assert corpus.header.tokenizer_digest == tokenizer.digest()
    assert corpus.end_id == tokenizer.end_ids[0]
    stores = (corpus.train, corpus.validation)
    documents = [store.document(index).tolist() for store in stores for index in range(store.num_documents)]
    assert sorted(documents) == sorted([*tokenizer.encode(text), corpus.end_id] for text in texts)


def test_a_folder_says_in_config_json_what_ends_a_text(model, tmp_path):
    source = open_checkpoint(model)
    files = tokenizer_files(source)
    settings = json.loads(files["tokenizer_config.json"])
    settings.pop("eos_token", None)
    files |= {"tokenizer_config.json": json.dumps(settings).encode()}
    del files["generation_config.json"]
    tensors = [tensor for tensor in source.tensors.values() if tensor.kind == "F32"]
    write_model_folder(tmp_path / "model", {"eos_token_id": 5}, tensors, files)
    tokenizer = write_tokenizer(tmp_path / "tokenizer", str(tmp_path / "model"), lambda: iter(()))
    assert tokenizer.end_ids == (5,)
    assert read_tokenizer(tmp_path / "tokenizer").digest() == tokenizer.digest()


def test_the_tokenizer_of_another_corpus_is_taken(corpus, config, tmp_path):
    choice = str(corpus.tokenizer_folder)
    other = prepare_corpus(tmp_path / "other", CorpusConfig(sources=config.sources, tokenizer=choice))
    assert other.header.tokenizer_digest == corpus.header.tokenizer_digest


@pytest.mark.parametrize(("adds_bos", "adds_eos"), [(True, False), (True, True), (False, True), (False, False)])
def test_a_text_begins_as_the_model_wants_it(byte_tokenizer, tmp_path, adds_bos, adds_eos):
    files = {
        "tokenizer.json": byte_tokenizer.backend_json(),
        "tokenizer_config.json": json.dumps(
            {"bos_token": "A", "eos_token": "<|endoftext|>", "add_bos_token": adds_bos, "add_eos_token": adds_eos}
        ),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tokens,) = TextEncoder(read_tokenizer(tmp_path)).encode(["hi"])
    assert tokens.tolist() == [ord("A")] * adds_bos + [*b"hi", 256]


def test_a_tokenizer_without_an_end_is_refused(corpus, tmp_path):
    folder = tmp_path / "endless"
    shutil.copytree(corpus.tokenizer_folder, folder)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "generation_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no token that ends a text"):
        write_tokenizer(tmp_path / "out", str(folder), lambda: iter(()))


@pytest.mark.parametrize("choice", ["bpe", "bpe:", "bpe:many", "bpe:257", "bpe:-5", ""])
def test_a_choice_that_is_none_is_refused_at_once(choice):
    with pytest.raises(ConfigError, match="bpe:"):
        CorpusConfig(sources=("stdlib",), tokenizer=choice)


def test_a_model_that_is_not_there(config, tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        prepare_corpus(tmp_path / "out", CorpusConfig(sources=config.sources, tokenizer=str(tmp_path / "m.gguf")))


def test_large_vocabularies_have_wide_tokens(corpus, config, tmp_path):
    assert corpus.train.document(0).dtype == np.uint16
    vocabulary = json.loads((corpus.tokenizer_folder / "tokenizer.json").read_text())
    folder = tmp_path / "wide"
    shutil.copytree(corpus.tokenizer_folder, folder)
    vocabulary["added_tokens"][0]["id"] = 70_000
    vocabulary["model"]["vocab"].pop("<|endoftext|>", None)
    vocabulary["model"]["vocab"] |= {f"filler{number}": number for number in range(256, 70_000)}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    (folder / "generation_config.json").write_text('{"eos_token_id": 70000}')
    wide = prepare_corpus(tmp_path / "out", CorpusConfig(sources=config.sources, tokenizer=str(folder)))
    assert (wide.vocab_size, wide.end_id) == (70_001, 70_000)
    document = wide.train.document(0)
    assert (document.dtype, document[-1]) == (np.uint32, 70_000)
