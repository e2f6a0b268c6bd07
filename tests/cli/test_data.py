from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.testing.command_line import Outcome, run_command
from headstart.train.corpus import open_corpus


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "texts.jsonl"
    texts = [f"Text number {number}." for number in range(40)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, texts[0], ""]))
    return f"jsonl:{path}"


def data(out: Path, *arguments: str) -> Outcome:
    return run_command("data", out, *arguments)


def test_the_document_has_all_counts(tmp_path: Path, source: str) -> None:
    out = tmp_path / "out"
    arguments = ("--source", source, "--seed", "3", "--validation-share", "0.25", "--json")
    outcome = data(out, *arguments)
    assert outcome.status == 0
    corpus, document = open_corpus(out), outcome.document
    assert document["splits"] == {
        name: {"documents": store.num_documents, "tokens": store.num_tokens, "bytes": store.num_bytes}
        for name, store in (("train", corpus.train), ("validation", corpus.validation))
    }
    assert sum(split["documents"] for split in document["splits"].values()) == 40
    (counts,) = document["sources"]
    assert (counts["name"], counts["duplicates"], counts["empty"], counts["undecodable"]) == (source, 1, 1, 0)
    assert {side: counts[side] for side in ("train", "validation")} == document["splits"]
    assert document["digest"] == corpus.digest
    assert document["settings"]["seed"] == 3
    assert document["tokenizer"]["vocab_size"] == 257
    # the same command again, and none but the folder, say the same
    assert data(out, *arguments).document == data(out, "--json").document == document
    assert data(out, "--verify", "--json").document == document


def test_people_get_a_table(tmp_path: Path, source: str) -> None:
    outcome = data(tmp_path / "out", "--source", source, "--tokenizer", "bpe:260")
    assert outcome.status == 0
    header, *rows = outcome.out.splitlines()
    assert header.split() == ["source", "documents", "tokens", "bytes"]
    corpus = open_corpus(tmp_path / "out")
    for row, name, split, store in (
        (rows[0], source, "train", corpus.train),
        (rows[1], source, "validation", corpus.validation),
        (rows[2], "all", "train", corpus.train),
        (rows[3], "all", "validation", corpus.validation),
    ):
        assert row.split() == [name, split, *map(str, (store.num_documents, store.num_tokens, store.num_bytes))]
    assert rows[4] == f"left out of {source}: 1 seen before, 1 empty"
    assert rows[5] == f"tokenizer bpe:260 with 260 tokens: {tmp_path / 'out' / 'tokenizer'}"
    assert f"{source}: 100 %, 40 documents" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--source", "stdlb"), "Did you mean stdlib?"),
        (("--seed", "1"), "--seed: no effect without --source"),
        (("--tokenizer", "bytes", "--validation-share", "0.1"), "--tokenizer, --validation-share: no effect"),
        (("--source", "stdlib", "--verify"), "--verify has no effect beside --source"),
        (("--source", "stdlib", "--tokenizer", "bpe:9"), "at least 258"),
        (("--source", "stdlib", "--validation-share", "2"), "validation_share = 2.0"),
        (("--sorce", "stdlib"), "--source"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_made(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    outcome = data(tmp_path / "out", *arguments)
    assert outcome.status == 2
    assert words in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_damaged_corpus_is_a_failure_that_names_the_file(tmp_path: Path, source: str) -> None:
    out = tmp_path / "out"
    assert data(out, "--source", source).status == 0
    shard = out / "train-00000.tokens"
    raw = bytearray(shard.read_bytes())
    raw[10] ^= 1
    shard.write_bytes(raw)
    # counts come from the header; to read every shard takes long for large ones
    assert data(out).status == 0
    for arguments in (("--verify",), ("--source", source)):
        outcome = data(out, *arguments)
        assert outcome.status == 1
        assert "train-00000.tokens: its content does not have the digest" in outcome.err


def test_a_folder_without_a_corpus(tmp_path: Path) -> None:
    outcome = data(tmp_path)
    assert outcome.status == 1
    assert "headstart data FOLDER --source" in outcome.err
