"""JSON of files, read with errors that name the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.errors import CheckpointError


def parse_json_object(text: str | bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object; a key that occurs twice is an error.

    Args:
        text: the JSON text (UTF-8 if bytes).
        where: what the text is, for the error.

    Raises:
        CheckpointError: it is no valid JSON, or not an object.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:  # ValueError: bad JSON, bad UTF-8, endless digits, repeated keys
        raise CheckpointError(f"{where} is not valid JSON ({error}). The file is damaged; fetch it again.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} holds a {type(value).__name__}, not a JSON object. Fetch the file again.")
    return value


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object.

    Raises:
        CheckpointError: the file is missing, unreadable, or not a JSON object.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read ({error}). Fetch it again.") from error
    return parse_json_object(raw, str(path))


def check_keys(data: Mapping[str, Any], names: set[str], where: str) -> None:
    """Refuse a JSON object that has not exactly these keys.

    Raises:
        CheckpointError: it says which are missing and which are unknown.
    """
    missing, unknown = sorted(names - set(data)), sorted(set(data) - names)
    problems = [
        f"{', '.join(keys)[:200]} {what}" for keys, what in ((missing, "missing"), (unknown, "unknown")) if keys
    ]
    if problems:
        raise CheckpointError(f"{where}: {'; '.join(problems)}. The file was altered; fetch or make it again.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"key {key!r} occurs twice")
        out[key] = value
    return out
