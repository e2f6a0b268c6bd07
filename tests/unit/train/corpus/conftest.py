"""Small sources and corpora."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headstart.train.corpus import Corpus, CorpusConfig, prepare_corpus

WriteTexts = Callable[[Sequence[str | None]], str]


@pytest.fixture(scope="session")
def texts() -> tuple[str, ...]:
    """Eighty different texts."""
    return tuple(f"The text of number {number} says {'ha' * (number % 7)} and ends.\n" for number in range(80))


@pytest.fixture
def write_texts(tmp_path: Path) -> WriteTexts:
    """Writes texts as a JSONL file of their own; gives the name of the source."""

    def write(texts: Sequence[str | None]) -> str:
        path = tmp_path / f"texts-{len(list(tmp_path.glob('texts-*')))}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        return f"jsonl:{path}"

    return write


@pytest.fixture
def config(texts: tuple[str, ...], write_texts: WriteTexts) -> CorpusConfig:
    return CorpusConfig(sources=(write_texts(texts),), validation_share=0.25, shard_tokens=500)


@pytest.fixture
def corpus(tmp_path: Path, config: CorpusConfig) -> Corpus:
    return prepare_corpus(tmp_path / "corpus", config)
