"""The turns of a run on disk, one a line as they end, so that a run can go on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.errors import CheckpointError, ConfigError
from headstart.measure.bench.records import CostSample, Turn

FILE = "turns.jsonl"
_FORM = 3


class Journal:
    """What was measured so far.

    Attributes:
        turns: in the order in which they ended.
        costs: what passes took, likewise.
        is_new: whether nothing had been measured when it was opened.
    """

    def __init__(self, folder: Path | None, subject: Mapping[str, Any]) -> None:
        """Open the journal of a folder, or begin one.

        Args:
            folder: of the run; `None` keeps nothing on disk.
            subject: all that results depend on and that must be the same to go on: model, drafters, prompts,
                settings, processor.

        Raises:
            ConfigError: the folder has a run about something else.
            CheckpointError: its journal is damaged.
        """
        self.turns: list[Turn] = []
        self.costs: list[CostSample] = []
        self._path = None if folder is None else folder / FILE
        subject = json.loads(json.dumps(subject))  # as it comes back from disk
        if self._path is not None and self._path.exists():
            self._read(self._path, subject)
        elif self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"kind": "run", "form": _FORM, "subject": subject}) + "\n", "utf-8")
        self.is_new = not (self.turns or self.costs)
        self._done = {*map(_key, self.turns), *map(_key, self.costs)}

    def has(self, kind: type[Turn] | type[CostSample], cell: str, side: str, repeat: int, group: str) -> bool:
        """Whether a turn or a cost was measured already."""
        return (kind.__name__, cell, side, repeat, group) in self._done

    def add(self, record: Turn | CostSample) -> None:
        """Keep a record."""
        if isinstance(record, Turn):
            self.turns.append(record)
        else:
            self.costs.append(record)
        self._done.add(_key(record))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record.to_json(), allow_nan=False) + "\n")

    def _read(self, path: Path, subject: Mapping[str, Any]) -> None:
        *lines, torn = path.read_text(encoding="utf-8").split("\n")
        try:
            head, *entries = (json.loads(line) for line in lines)
            if head["form"] != _FORM:
                raise ValueError(f"its form is {head['form']}, and this version writes form {_FORM}")
            differing = sorted(
                key for key in {*head["subject"], *subject} if head["subject"].get(key) != subject.get(key)
            )
            for entry in entries:
                if entry["kind"] == "turn":
                    self.turns.append(Turn.from_json(entry))
                else:
                    self.costs.append(CostSample.from_json(entry))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({type(error).__name__}: {error}). Name another folder, or remove it."
            ) from error
        if differing:
            raise ConfigError(
                f"{path.parent} holds a run with another {', '.join(differing)}. Name another folder with --out, or "
                "give the flags of that run to go on with it."
            )
        if torn:  # written while the machine went down
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _key(record: Turn | CostSample) -> tuple[str, str, str, int, str]:
    return type(record).__name__, record.cell, record.side, record.repeat, record.group
