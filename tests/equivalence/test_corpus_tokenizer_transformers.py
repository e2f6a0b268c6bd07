"""The tokenizers that are made for a corpus are read by transformers as they are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.train.corpus.vocabulary import write_tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = (
    "Hello world, it's 2026.\n\n\tdef f(x):  return x_1  # naïve, привет, 你好, 🙂!?",
    " e\u0301 and é, a NUL \0, a \ufeff, \u2028\x85 and \r\n",
    "one <|endoftext|> two",
    " ",
)


@pytest.mark.parametrize("choice", ["bytes", "bpe:270"])
def test_transformers_reads_the_same_tokenizer(tmp_path: Path, choice: str) -> None:
    ours = write_tokenizer(tmp_path / "tokenizer", choice, lambda: iter(TEXTS * 2))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert theirs.eos_token_id == ours.end_ids[0]
    for text in TEXTS:
        assert theirs(text).input_ids == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == text
