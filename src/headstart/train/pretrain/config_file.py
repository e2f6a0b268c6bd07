"""A run's TOML file, and what a command line changes in it; unknown keys are errors that name the nearest."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from headstart.errors import ConfigError
from headstart.train.pretrain.config import DataConfig, PretrainConfig, TrainConfig
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads

_TABLES = {"model": ModelConfig, "heads": PretrainHeads, "data": DataConfig, "train": TrainConfig}


def read_pretrain_config(path: Path, changes: Iterable[str] = ()) -> PretrainConfig:
    """Read a run's settings.

    Args:
        path: a TOML file of the tables model, heads, data and train.
        changes: such as "train.steps=200" or "heads.kind=sequential", over what the file says.

    Raises:
        ConfigError: no TOML, an unknown table or key, or a value of another type or out of its range.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the settings cannot be read ({error.strerror}). Name another file.") from None
    except ValueError as error:  # wrong TOML, or not UTF-8
        raise ConfigError(f"{path}: not a TOML file ({error}). Mend it, or name another.") from None
    tables: dict[str, dict[str, Any]] = {}
    for name, table in document.items():
        if name not in _TABLES or not isinstance(table, dict):
            raise ConfigError(f"{path}: {name!r} is no table of a training.{_nearest(name, _TABLES)}")
        tables[name] = _checked(name, table, str(path))
    for change in changes:
        name, key, value, text = _parse_change(change)
        tables[name] = tables.get(name, {}) | _checked(name, {key: value}, change, written=text)
    return PretrainConfig(
        model=ModelConfig(**tables.get("model", {})),
        heads=PretrainHeads(**tables.get("heads", {})),
        data=DataConfig(**tables.get("data", {})),
        train=TrainConfig(**tables.get("train", {})),
    )


def _parse_change(change: str) -> tuple[str, str, Any, str]:
    """Table, key, value, and how the value was written."""
    place, equals, text = change.partition("=")
    table, _, key = place.strip().partition(".")
    if not equals or table not in _TABLES or not key:
        raise ConfigError(f"{change!r}: give TABLE.KEY=VALUE, the table one of {', '.join(_TABLES)}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a word needs no quotation marks on a command line
    return table, key, value, text.strip()


def _checked(name: str, table: Mapping[str, Any], where: str, *, written: str = "") -> dict[str, Any]:
    """The values of a table in the types of its class; a text is as `written`, though it may look like a number."""
    kind = _TABLES[name]
    hints = get_type_hints(kind)
    known = [entry.name for entry in fields(kind)]
    values = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"{where}: [{name}] has no key {key!r}.{_nearest(key, known)}")
        values[key] = _typed(hints[key], value, f"{where}: {name}.{key}", written)
    return values


def _typed(hint: Any, value: Any, where: str, written: str = "") -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f'{where} = {value!r}: it must be a list, such as ["a", "b"].')
        return tuple(_typed(get_args(hint)[0], part, where) for part in value)
    wanted = str if get_origin(hint) is Literal else hint
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is str and type(value) in (int, float):
        return written or str(value)  # a weight, which may also be a list of them
    if type(value) is not wanted:
        raise ConfigError(f"{where} = {value!r}: it must be {_NAMES[wanted]}.")
    return value


_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _nearest(name: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else f" There are {', '.join(allowed)}."
