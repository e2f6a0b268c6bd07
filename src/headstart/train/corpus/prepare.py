"""Sources to a corpus on disk."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tokenizers

from headstart import __version__
from headstart.errors import ConfigError
from headstart.train.corpus.header import (
    HEADER_NAME,
    MARK_NAME,
    SPLITS,
    TOKENIZER_NAME,
    CorpusHeader,
    SourceCounts,
    SplitRecord,
    read_header,
    write_header,
)
from headstart.train.corpus.intake import Text, take_in
from headstart.train.corpus.shards import SplitWriter
from headstart.train.corpus.sources import Source, parse_sources
from headstart.train.corpus.store import Corpus, open_corpus
from headstart.train.corpus.vocabulary import TextEncoder, check_tokenizer_choice, write_tokenizer
from headstart.train.whole_files import write_whole

# a tokenizer learns little more from a larger text, and takes memory for every word of it
_TRAINING_BYTES = 1 << 28

# texts are encoded together, which the library does on all cores
_TOGETHER_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusConfig:
    """How a corpus is prepared.

    Attributes:
        sources: names, see `parse_sources`.
        tokenizer: "bytes", "bpe:SIZE" (trained on the documents to learn from), or a model or folder to take it from.
        seed: decides the order of documents, 0 to 2**64 - 1.
        validation_share: of documents that are held out, 0 or more and below 1.
        shard_tokens: a file that has as many tokens is closed.

    Raises:
        ConfigError: a number is out of range.
    """

    sources: tuple[str, ...]
    tokenizer: str = "bytes"
    seed: int = 0
    validation_share: float = 0.05
    shard_tokens: int = 1 << 28

    def __post_init__(self) -> None:
        check_tokenizer_choice(self.tokenizer)
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"seed = {self.seed}: it must be between 0 and 2**64 - 1.")
        if not 0 <= self.validation_share < 1:
            raise ConfigError(
                f"validation_share = {self.validation_share}: it must be at least 0 and below 1. Give 0.05 to hold out "
                "one document of twenty."
            )
        if self.shard_tokens < 1:
            raise ConfigError(f"shard_tokens = {self.shard_tokens}: a shard has at least one token.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparing:
    """How far a preparation is.

    Attributes:
        source: being read; "tokenizer" while all are read to train one.
        documents: taken in from it so far.
        bytes: of their text.
        done: whether it has been read to its end.
    """

    source: str
    documents: int
    bytes: int
    done: bool


Show = Callable[[Preparing], None]


def prepare_corpus(path: str | Path, config: CorpusConfig, show: Show = lambda progress: None) -> Corpus:
    """Prepare a corpus, or open one that was prepared with the same settings.

    What was interrupted is begun anew. One process prepares; others may open the folder once it returns.

    Args:
        path: a folder that does not exist, is empty, or was prepared before.
        config: what it is made of.
        show: told now and then how far it is.

    Raises:
        ConfigError: a setting or source is wrong, the folder holds something else, or no document was found.
        CheckpointError, UnsupportedError: the tokenizer cannot be read.

    Example:
        >>> corpus = prepare_corpus("code", CorpusConfig(sources=("stdlib",)))
    """
    path = Path(path)
    if (path / HEADER_NAME).is_file():
        _require_same(path, config)
        return open_corpus(path)
    sources = parse_sources(config.sources)
    _clear(path, config)
    tokenizer = write_tokenizer(path / TOKENIZER_NAME, config.tokenizer, lambda: _training_texts(sources, config, show))
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    counts = [SourceCounts(name=source.name, about=source.about) for source in sources]
    texts = _shown(take_in(sources, config.validation_share, counts), sources, show)
    with ExitStack() as stack:
        writers = {
            split: stack.enter_context(SplitWriter(path, split, np.dtype(dtype), config.shard_tokens))
            for split in SPLITS
        }
        _write(texts, TextEncoder(tokenizer), writers, counts, config.seed)
        splits: dict[str, SplitRecord] = {split: writer.finish() for split, writer in writers.items()}
    if not splits["train"].documents:
        raise ConfigError(
            f"{', '.join(config.sources)}: there is no document to learn from ({splits['validation'].documents} to "
            "validate with). A file is one document, unless lines that are <|endoftext|> part it: name more of them, "
            "or a smaller validation share."
        )
    versions = {
        "headstart": __version__, "python": platform.python_version(), "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
    }  # fmt: skip
    write_header(
        path,
        CorpusHeader(
            settings=_settings(config), versions=versions, dtype=dtype, vocab_size=tokenizer.vocab_size,
            end_id=tokenizer.end_ids[0], tokenizer_digest=tokenizer.digest(), splits=splits, sources=tuple(counts),
        ),
    )  # fmt: skip
    (path / MARK_NAME).unlink()
    return open_corpus(path, verify=False)


def _settings(config: CorpusConfig) -> dict[str, object]:
    return asdict(config) | {"sources": list(config.sources)}


def _require_same(path: Path, config: CorpusConfig) -> None:
    old, new = read_header(path).settings, _settings(config)
    differing = [name for name in new if old.get(name) != new[name]]
    if differing:
        shown = "; ".join(f"{name} was {old.get(name)!r} and is now {new[name]!r}" for name in differing)
        raise ConfigError(f"{path} holds a corpus with other settings: {shown}. Give them again, or another folder.")


def _clear(path: Path, config: CorpusConfig) -> None:
    """Make the folder and mark it, or take away what an interrupted preparation left there."""
    mark = path / MARK_NAME
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not mark.is_file() and any(path.iterdir()):
            raise ConfigError(f"{path} is not empty, and no corpus. Name another folder, or clear this one.")
        write_whole(mark, json.dumps(_settings(config), indent=2) + "\n")
        shutil.rmtree(path / TOKENIZER_NAME, ignore_errors=True)
        for pattern in ("*.tokens", "*.tokens.partial", "*.index"):
            for left in path.glob(pattern):
                left.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: the folder cannot be written ({error.strerror}). Name another.") from error


def _training_texts(sources: Sequence[Source], config: CorpusConfig, show: Show) -> Iterator[str]:
    """Texts to train a tokenizer on: those to learn from, of each source as much as of the others."""
    share = _TRAINING_BYTES // len(sources)
    documents = num_bytes = 0
    for source in sources:
        end = num_bytes + share
        for text in take_in([source], config.validation_share):
            if text.split == "train":
                documents, num_bytes = documents + 1, num_bytes + text.num_bytes
                show(Preparing(source=TOKENIZER_NAME, documents=documents, bytes=num_bytes, done=False))
                yield text.text
            if num_bytes >= end:
                break
    show(Preparing(source=TOKENIZER_NAME, documents=documents, bytes=num_bytes, done=True))


def _shown(texts: Iterable[Text], sources: Sequence[Source], show: Show) -> Iterator[Text]:
    """The same texts, telling of them."""
    documents = num_bytes = current = 0
    show(Preparing(source=sources[0].name, documents=0, bytes=0, done=False))
    for text in texts:
        while current < text.source:
            show(Preparing(source=sources[current].name, documents=documents, bytes=num_bytes, done=True))
            documents, num_bytes, current = 0, 0, current + 1
        documents, num_bytes = documents + 1, num_bytes + text.num_bytes
        show(Preparing(source=sources[current].name, documents=documents, bytes=num_bytes, done=False))
        yield text
    for source in sources[current:]:
        show(Preparing(source=source.name, documents=documents, bytes=num_bytes, done=True))
        documents = num_bytes = 0


def _write(
    texts: Iterable[Text],
    encoder: TextEncoder,
    writers: dict[str, SplitWriter],
    counts: Sequence[SourceCounts],
    seed: int,
) -> None:
    for together in _grouped(texts):
        for text, tokens in zip(together, encoder.encode([text.text for text in together]), strict=True):
            writers[text.split].add(tokens, text.num_bytes, text.order_key(seed))
            side = counts[text.source].train if text.split == "train" else counts[text.source].validation
            side.documents += 1
            side.tokens += len(tokens)
            side.bytes += text.num_bytes


def _grouped(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Runs of texts that are large enough to be worth a call."""
    together: list[Text] = []
    num_bytes = 0
    for text in texts:
        together.append(text)
        num_bytes += text.num_bytes
        if num_bytes >= _TOGETHER_BYTES:
            yield together
            together, num_bytes = [], 0
    if together:
        yield together
