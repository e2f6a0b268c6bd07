"""Whether the values of a run's settings can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headstart.errors import ConfigError


def changed_fields(config: Any, *but: str) -> list[str]:
    """Fields that differ from their defaults."""
    fields = config.__dataclass_fields__.values()
    return [entry.name for entry in fields if entry.name not in but and getattr(config, entry.name) != entry.default]


def is_positive(value: float) -> bool:
    """Whether a number is finite and above 0."""
    return math.isfinite(value) and value > 0


def require_one_of(table: str, name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse a choice that does not exist; see `require_in_range`."""
    require_in_range(value in allowed, table, name, value, f"one of {', '.join(allowed)}")


def require_in_range(holds: bool, table: str, name: str, value: object, allowed: str) -> None:
    """Refuse a value.

    Args:
        holds: whether it can stand.
        table, name: where it stands in the file.
        value: what came.
        allowed: completes "it must be".

    Raises:
        ConfigError: it cannot.
    """
    if not holds:
        raise ConfigError(f"{table}.{name} = {value!r}: it must be {allowed}.")
