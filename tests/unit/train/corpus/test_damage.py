"""A corpus that is damaged, or mixed up with another, is refused by the name of the file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.errors import CheckpointError, UnsupportedError
from headstart.train.corpus import open_corpus, prepare_corpus

FILES = ("train-00000.tokens", "train-00002.tokens", "validation-00000.tokens", "train.index", "validation.index")


def flip_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("name", FILES)
def test_a_bit_that_flipped(corpus, name):
    flip_bit(corpus.path / name)
    with pytest.raises(CheckpointError, match=rf"{name}: its content does not have the digest"):
        open_corpus(corpus.path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_that_was_cut_or_grew(corpus, name, verify):
    path = corpus.path / name
    raw = path.read_bytes()
    for wrong in (raw[:-2], raw + b"\0\0", b""):
        path.write_bytes(wrong)
        with pytest.raises(
            CheckpointError, match=rf"{name}: {len(wrong)} bytes long, where the header says {len(raw)}"
        ):
            open_corpus(corpus.path, verify=verify)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_that_is_missing(corpus, name, verify):
    (corpus.path / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name}: the file cannot be read"):
        open_corpus(corpus.path, verify=verify)


def test_a_file_of_another_corpus(corpus, config, tmp_path):
    # with the same documents in another order, so that no length can tell
    foreign = prepare_corpus(tmp_path / "foreign", replace(config, seed=5))
    shutil.copy(foreign.path / "train.index", corpus.path)
    with pytest.raises(CheckpointError, match=r"train\.index: its content does not have the digest"):
        open_corpus(corpus.path, verify=False)


def test_another_tokenizer(corpus, config, tmp_path):
    other = prepare_corpus(tmp_path / "other", replace(config, tokenizer="bpe:300"))
    shutil.rmtree(corpus.tokenizer_folder)
    shutil.copytree(other.tokenizer_folder, corpus.tokenizer_folder)
    with pytest.raises(CheckpointError, match=r"tokenizer: this is not the tokenizer"):
        open_corpus(corpus.path, verify=False)


def test_no_tokenizer(corpus):
    shutil.rmtree(corpus.tokenizer_folder)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: the file is missing"):
        open_corpus(corpus.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(end_id=7),
        lambda header: header.update(dtype="<u4"),
        lambda header: header["splits"]["train"].update(bytes=1),
        lambda header: header["splits"]["validation"]["shards"].pop(),
        lambda header: header["splits"]["train"]["shards"].reverse(),
        lambda header: header.update(digest="0" * 32),
    ],
)
def test_a_header_that_was_altered(corpus, change):
    path = corpus.path / "corpus.json"
    header = json.loads(path.read_text())
    change(header)
    path.write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match=r"corpus\.json: the header was altered"):
        open_corpus(corpus.path, verify=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda header: header.pop("splits"), "is malformed"),
        (lambda header: header["splits"].pop("train"), "is malformed"),
        (lambda header: header["splits"].update(train=3), "is malformed"),
        (lambda header: header.update(more=1), "is malformed"),
        (lambda header: header.update(sources=[3]), "is malformed"),
        (lambda header: header.update(format="other"), "not the header of a corpus"),
    ],
)
def test_a_header_that_is_none(corpus, change, words):
    path = corpus.path / "corpus.json"
    header = json.loads(path.read_text())
    change(header)
    path.write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match=words):
        open_corpus(corpus.path)


def test_a_later_version(corpus):
    path = corpus.path / "corpus.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(UnsupportedError, match="version 2 of the format; this build reads 1"):
        open_corpus(corpus.path)


def test_no_corpus(tmp_path):
    with pytest.raises(CheckpointError, match=r"no corpus, as there is no corpus\.json"):
        open_corpus(tmp_path)
