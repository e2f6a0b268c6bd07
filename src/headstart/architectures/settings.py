"""Numbers out of a file's own settings, with their types checked: a damaged file must end in an error that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headstart.errors import CheckpointError

Settings = Mapping[str, Any]
"""The contents of a config.json, an object within it, or a GGUF file's key-values."""

_ADVICE = "The file is damaged, or made for another program; fetch it again."


def real(settings: Settings, key: str, default: float | None = None) -> float:
    """A setting that is a number.

    Raises:
        CheckpointError: it is something else, or missing and without a default.
    """
    value = settings.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(f"The model's setting {key!r} {_found(value)}; it must be a number. {_ADVICE}")
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf if value > 0 else -math.inf


def positive(settings: Settings, key: str, default: float | None = None) -> float:
    """A setting that is a finite number above 0.

    Raises:
        CheckpointError: it is something else, or missing and without a default.
    """
    value = real(settings, key, default)
    if not 0.0 < value < math.inf:
        raise CheckpointError(f"The model's setting {key!r} is {value}; it must be a finite number above 0. {_ADVICE}")
    return value


def count(settings: Settings, key: str, default: int | None = None, *, most: int = (1 << 31) - 1) -> int:
    """A setting that is a whole number from 1 to `most`; a default may be any.

    Raises:
        CheckpointError: it is something else, or missing and without a default.
    """
    value = settings.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 < value <= most:
        raise CheckpointError(
            f"The model's setting {key!r} {_found(value)}; it must be a whole number from 1 to {most}. {_ADVICE}"
        )
    return value


def _found(value: object) -> str:
    return "is missing" if value is None else f"is {str(value)[:80]!r}"
