"""Documents out of files with records: JSONL, Parquet, and what the Hugging Face library `datasets` reads."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import ConfigError, UnsupportedError
from headstart.train.corpus.files import open_text, reading

_ROWS_AT_ONCE = 1024
# what `Dataset.save_to_disk` and `DatasetDict.save_to_disk` leave
_SAVED = ("state.json", "dataset_dict.json")


def jsonl_documents(path: Path, field: str) -> Iterator[bytes]:
    """One field of each line; empty lines do not count.

    Args:
        path: the file; unzipped if its name ends in .gz.
        field: a string in each object; null is an empty document.

    Raises:
        ConfigError: the file cannot be read, or a line is not such an object; the text has its number.
    """
    with reading(path), open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{where}: not valid JSON ({error}). Each line must be one object.") from None
            if not isinstance(record, dict):
                raise ConfigError(f"{where}: it holds a {type(record).__name__}; each line must be one object.")
            yield _content(record, field, where)


def parquet_documents(path: Path, column: str) -> Iterator[bytes]:
    """One column of each row, some rows in memory at a time.

    Raises:
        ConfigError: the file cannot be read, or has no such column of texts.
    """
    parquet = importlib.import_module("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # the library's own kinds, which need it to be named
        raise ConfigError(f"{path}: no Parquet file ({error}). Name another.") from error
    with file:
        _require_column(column, file.schema_arrow.names, str(path))
        number = 0
        for batch in _whole(file.iter_batches(_ROWS_AT_ONCE, columns=[column]), str(path)):
            for record in batch.to_pylist():
                number += 1
                yield _content(record, column, f"{path}, row {number}")


def dataset_documents(name: str, config: str | None, split: str, column: str) -> Iterator[bytes]:
    """One column of a data set's split: of a folder that `save_to_disk` wrote, or streamed.

    Args:
        name: a folder, or a name on the hub, the only case in which the network is used.
        config: the data set's configuration, if it has several.
        split: such as "train".
        column: of texts.

    Raises:
        ConfigError: the library does not open it, or it has no such column of texts.
    """
    datasets = importlib.import_module("datasets")
    try:
        if any(Path(name, file).is_file() for file in _SAVED):
            rows = _split_of(datasets.load_from_disk(name), split)
        else:
            rows = datasets.load_dataset(name, config, split=split, streaming=True)
    except Exception as error:  # the library's own, requests' and the operating system's: all mean "not to be had"
        raise ConfigError(
            f"Data set {name}, split {split}: it cannot be opened ({type(error).__name__}: {error}). Check its name, "
            "its splits, and the network if it is on the hub."
        ) from error
    for number, record in enumerate(_whole(rows, f"data set {name}"), start=1):
        yield _content(record, column, f"data set {name}, row {number}")


def _whole(parts: Iterable[Any], where: str) -> Iterator[Any]:
    """What a library reads part by part.

    Raises:
        ConfigError: it fails on the way.
    """
    number = 0
    following = iter(parts)
    while True:
        try:
            part = next(following)
        except StopIteration:
            return
        except Exception as error:  # the library's own, and the network's
            raise ConfigError(
                f"{where}: it cannot be read to its end ({type(error).__name__} after {number} parts: {error}). "
                "Get it again, or name another."
            ) from error
        yield part
        number += 1


def _split_of(saved: Any, split: str) -> Any:
    if isinstance(saved, Mapping):
        return saved[split]
    if saved.split not in (None, split):
        raise ValueError(f"it is the split {saved.split}")
    return saved


def require_pyarrow() -> None:
    """See that Parquet files can be read.

    Raises:
        UnsupportedError: pyarrow is not installed.
    """
    _require("pyarrow", "Parquet files")


def require_datasets() -> None:
    """See that data sets can be read.

    Raises:
        UnsupportedError: datasets is not installed.
    """
    _require("datasets", "Hugging Face data sets")


def _require(package: str, what: str) -> None:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UnsupportedError(
            f"{what} are read by the package {package}, which is not installed: pip install {package}"
        ) from None


def _require_column(column: str, there: Sequence[str], where: str) -> None:
    if column not in there:
        raise ConfigError(
            f"{where}: there is no {column!r}, only {', '.join(map(repr, there))}. Name one after a colon."
        )


def _content(record: Mapping[str, Any], field: str, where: str) -> bytes:
    _require_column(field, list(record), where)
    text = record[field]
    if text is None:
        return b""
    if not isinstance(text, str):
        raise ConfigError(f"{where}: {field!r} is a {type(text).__name__}; it must be a text. Name another field.")
    # halves of surrogate pairs, which JSON can hold, become what is not UTF-8
    return text.encode("utf-8", "surrogatepass")
