"""Flags from elsewhere: environment variables and a TOML file, in this order after the command line.

`HEADSTART_MAX_TOKENS=64` is `--max-tokens 64`; several values are a JSON list of texts. The file, named by `--config`
or `HEADSTART_CONFIG`, has a table for each verb:

    [generate]
    max_tokens = 64
    stop = ["###"]

A file may hold tables of verbs that are not called. An unknown table or key is
an error: a setting that is silently ignored is worse than none.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict, Env

from headstart.errors import ConfigError

ConfigSource = Callable[[App, tuple[str, ...], ArgumentCollection], None]

ENVIRONMENT_PREFIX = "HEADSTART_"

SettingsFile = Annotated[
    Path | None, Parameter(help="TOML file with flags, in a table for each verb. HEADSTART_CONFIG names it too.")
]
"""The flag `--config` of a verb."""


def split_variable(type_: Any, value: str, *, delimiter: str | None = None) -> list[str]:
    """The values in an environment variable, as cyclopts asks for them: one, unless it is a JSON list of texts.

    Example:
        >>> split_variable(list[str], "User: "), split_variable(list[str], '["a", "b"]')
        (['User: '], ['a', 'b'])
    """
    try:
        values = json.loads(value)
    except ValueError:
        return [value]
    is_list = isinstance(values, list) and all(isinstance(each, str) for each in values)
    return values if is_list else [value]


def settings_sources(verbs: Sequence[str]) -> tuple[ConfigSource, ...]:
    """What fills flags that the command line leaves open, for `cyclopts.App.config`.

    Args:
        verbs: the tables that a file may have.
    """
    # the first source that has a value wins; it also may name the file
    return (Env(ENVIRONMENT_PREFIX, command=False, show=False), _SettingsFile(tuple(verbs)))


@dataclass(frozen=True, slots=True)
class _SettingsFile:
    """Fills arguments that have no value yet; cyclopts calls it after reading the command line."""

    verbs: tuple[str, ...]

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        path = _named_file(arguments)
        if path is None:
            return
        tables = _read(path)
        for name, table in tables.items():
            if name not in self.verbs or not isinstance(table, dict):
                raise ConfigError(f"{path}: {name!r} is no table of a verb.{_nearest(name, self.verbs)}")
        table = tables.get(commands[0], {})
        Dict(table, source=f"{path} [{commands[0]}]", use_commands_as_keys=False)(app, commands, arguments)


def _named_file(arguments: ArgumentCollection) -> Path | None:
    for argument in arguments:
        if argument.name == "--config" and argument.tokens:
            return Path(argument.tokens[0].value)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the settings cannot be read ({error.strerror}). Name another file.") from None
    except ValueError as error:  # wrong TOML, or not UTF-8
        raise ConfigError(f"{path}: not a TOML file ({error}). Mend it, or name another.") from None


def _nearest(name: str, allowed: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, allowed, n=1)
    return f" Did you mean [{close[0]}]?" if close else f" Allowed are {', '.join(f'[{verb}]' for verb in allowed)}."
