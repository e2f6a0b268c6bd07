"""`headstart data`: text for pretraining, prepared once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headstart.cli.settings import SettingsFile
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.train.corpus import Corpus, CorpusConfig, Preparing


def data(
    out: Annotated[Path, Parameter(help="The corpus' folder: to be made, or one that was prepared before.")],
    /,
    *,
    source: Annotated[
        tuple[str, ...],
        Parameter(
            help="Where text comes from; may be given several times: stdlib (Python's own), docs (documentation on "
            "this machine), text:FILE, tree:FOLDER:PATTERNS, jsonl:FILE:FIELD, parquet:FILE:COLUMN, "
            "dataset:NAME:SPLIT:COLUMN. Without it, the counts of a corpus that is there are printed."
        ),
    ] = (),
    tokenizer: Annotated[
        str | None,
        Parameter(
            help="bytes (the default), bpe:SIZE (trained on the text), or a model's file or folder, for its tokenizer."
        ),
    ] = None,
    seed: Annotated[int | None, Parameter(help="Decides the order of documents; 0 by default.")] = None,
    validation_share: Annotated[
        float | None, Parameter(help="Of documents that are never trained on; 0.05 by default.")
    ] = None,
    verify: Annotated[bool, Parameter(help="Read all of a corpus that is there, to see that it is whole.")] = False,
    config: SettingsFile = None,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> None:
    """Prepare text for pretraining, and print what it holds.

    Each text is taken once; what is empty or no UTF-8 is left out and counted. The same command begins anew after an
    interruption, and opens what is there when all is done.
    """
    flags = {"tokenizer": tokenizer, "seed": seed, "validation_share": validation_share}
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    _refuse_without_effect(source, given, verify)

    # late: they bring numpy and tokenizers, which --help can do without
    from headstart.cli.results import print_json
    from headstart.train.corpus import CorpusConfig, open_corpus

    corpus = _prepare(out, CorpusConfig(sources=source, **given)) if source else open_corpus(out, verify=verify)
    if json:
        print_json(_document(corpus))
    else:
        print(_account(corpus))


def _refuse_without_effect(source: tuple[str, ...], given: dict[str, Any], verify: bool) -> None:
    if source and verify:
        raise ConfigError(
            "--verify has no effect beside --source: a corpus that is there is checked then anyway. Leave one out."
        )
    if given and not source:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{names}: no effect without --source. Name sources of text, or leave the rest out too.")


def _prepare(out: Path, config: CorpusConfig) -> Corpus:
    from headstart.cli.phases import PhaseProgress
    from headstart.train.corpus import prepare_corpus

    with PhaseProgress() as bars:

        def show(progress: Preparing) -> None:
            note = f"{progress.documents:,} documents, {progress.bytes / 1e6:,.1f} MB"
            bars.show(progress.source, float(progress.done), 1.0, note)  # how much there will be is not known

        return prepare_corpus(out, config, show)


def _document(corpus: Corpus) -> dict[str, object]:
    header = corpus.header
    return {
        "path": str(corpus.path),
        "digest": corpus.digest,
        "settings": dict(header.settings),
        "versions": dict(header.versions),
        "tokenizer": {
            "path": str(corpus.tokenizer_folder),
            "digest": header.tokenizer_digest,
            "vocab_size": corpus.vocab_size,
            "end_id": corpus.end_id,
        },
        "splits": {
            name: {"documents": store.num_documents, "tokens": store.num_tokens, "bytes": store.num_bytes}
            for name, store in (("train", corpus.train), ("validation", corpus.validation))
        },
        "sources": [asdict(source) for source in header.sources],
    }


def _account(corpus: Corpus) -> str:
    rows = [("source", "", "documents", "tokens", "bytes")]
    left_out = []
    for source in corpus.header.sources:
        for split, side in (("train", source.train), ("validation", source.validation)):
            rows.append((source.name, split, f"{side.documents:,}", f"{side.tokens:,}", f"{side.bytes:,}"))
        reasons = ((source.duplicates, "seen before"), (source.empty, "empty"), (source.undecodable, "not UTF-8"))
        if dropped := [f"{count:,} {reason}" for count, reason in reasons if count]:
            left_out.append(f"left out of {source.name}: {', '.join(dropped)}")
    for split, store in (("train", corpus.train), ("validation", corpus.validation)):
        rows.append(("all", split, f"{store.num_documents:,}", f"{store.num_tokens:,}", f"{store.num_bytes:,}"))
    choice = corpus.header.settings["tokenizer"]
    tokenizer = f"tokenizer {choice} with {corpus.vocab_size:,} tokens: {corpus.tokenizer_folder}"
    return "\n".join([*_columns(rows), *left_out, tokenizer])


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Words on the left of their columns, numbers on the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
