"""A training run on disk: its config, its metrics, and a state to go on from.

config.json          what was asked for, versions, and the machine; a run is resumed with the same or not at all
metrics.jsonl        one object a line, flushed at once
decisions.json       what was decided on the way, such as how many steps the time allows
state.safetensors    the last checkpoint, replaced as a whole
.lock                held by the process that is at work
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart import __version__
from headstart.checkpoint.json_files import read_json_object
from headstart.checkpoint.safetensors import read_safetensors, read_safetensors_header
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.checkpoint.tensor import Tensor as StoredTensor
from headstart.errors import CheckpointError, ConfigError
from headstart.train.folder_lock import FolderLock
from headstart.train.whole_files import partial_path, write_whole

STATE_NAME, DECISIONS_NAME = "state.safetensors", "decisions.json"

_PROGRESS, _DIGEST = "progress", "digest"


class RunDirectory:
    """One run's folder.

    Attributes:
        path: the folder.
        resumed: whether it held a run before.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        """Open a folder, or begin a run in it.

        Args:
            path: made if need be.
            config: plain JSON data.

        Raises:
            ConfigError: it holds a run with another config, and the text says where they differ; or something else
                than a run, which could come to harm; or another process is at work in it.
        """
        self.path = path
        about = path / "config.json"
        # a run that ended before it left anything, such as by an error in its settings, may begin again with others
        self.resumed = bool(_others(path, about))
        old = _config_of(path, about) if self.resumed or about.exists() else {}
        if not self.resumed:
            self._begin(config)
            return
        _require_same(path, old, config)
        self._take_hold()
        self._end_last_line()

    def _take_hold(self) -> None:
        """Keep other processes out until this object, or the process, ends."""
        self._lock = FolderLock.take(self.path)

    def _begin(self, config: Mapping[str, Any]) -> None:
        self._take_hold()
        document = {
            "config": dict(config),
            "versions": {"headstart": __version__, "torch": torch.__version__, "numpy": np.__version__},
            "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        }
        write_whole(self.path / "config.json", json.dumps(document, indent=2) + "\n")

    def remember(self, name: str, value: Any) -> None:
        """Keep a decision of this run, plain JSON data, for when it is resumed."""
        decisions = self._decisions() | {name: value}
        write_whole(self.path / DECISIONS_NAME, json.dumps(decisions) + "\n")

    def recall(self, name: str) -> Any:
        """What was decided, or `None`."""
        return self._decisions().get(name)

    def damaged(self, name: str) -> CheckpointError:
        """What to raise where a state stands beside a decision that must have been made before it, and is not there."""
        return CheckpointError(
            f"{self.path} has a state, but {DECISIONS_NAME} lacks the {name} that came before it. Begin anew in "
            "another folder."
        )

    def _decisions(self) -> dict[str, Any]:
        path = self.path / DECISIONS_NAME
        return read_json_object(path) if path.exists() else {}

    def _end_last_line(self) -> None:
        """So that what comes next is not joined to a line that an interruption cut off."""
        path = self.path / "metrics.jsonl"
        content = path.read_bytes() if path.exists() else b""
        if content and not content.endswith(b"\n"):
            with path.open("ab") as file:
                file.write(b"\n")

    def log(self, **entry: Any) -> None:
        """Add a line to the metrics; what is no finite number stands there as null, for JSON has no other word."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(_finite(entry), allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All lines so far, but for those that an interruption cut off."""
        path = self.path / "metrics.jsonl"
        found = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def forget_after(self, step: int) -> None:
        """Drop metrics of steps after the checkpoint that a run goes on from; they will be taken again."""
        kept = [entry for entry in self.metrics() if entry.get("step", -1) <= step]
        if (self.path / "metrics.jsonl").exists():
            write_whole(self.path / "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept))

    def save(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Replace the state.

        Args:
            tensors: float32, of any shape.
            progress: plain JSON data.
        """
        stored = [_stored(name, tensor) for name, tensor in tensors.items()]
        about = json.dumps(progress)
        write_safetensors(self.path / STATE_NAME, stored, {_PROGRESS: about, _DIGEST: _digest(stored, about)})

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What `save` was given last, or `None`.

        Raises:
            CheckpointError: the state is damaged.
        """
        return read_state(self.path) if (self.path / STATE_NAME).exists() else None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_state(run: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state in a run's folder: its tensors, and how far the run was.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    path = run / STATE_NAME
    metadata, _ = read_safetensors_header(path)
    if _PROGRESS not in metadata:
        raise CheckpointError(f"{path} is no state of a run. Remove it to begin anew.")
    stored = read_safetensors(path)
    if metadata.get(_DIGEST) != _digest(stored.values(), metadata[_PROGRESS]):
        raise CheckpointError(f"{path} is damaged: it does not hold what was written. Remove it to begin anew.")
    tensors = {
        name: torch.from_numpy(tensor.data.view(np.float32).reshape(tensor.shape).copy())
        for name, tensor in stored.items()
    }
    return tensors, json.loads(metadata[_PROGRESS])


def _digest(tensors: Iterable[StoredTensor], progress: str) -> str:
    state = hashlib.blake2b(progress.encode(), digest_size=16)
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):
        state.update(f"{tensor.name} {tensor.shape}".encode())
        state.update(tensor.data.data)
    return state.hexdigest()


def _stored(name: str, tensor: Tensor) -> StoredTensor:
    if tensor.dtype != torch.float32:
        raise AssertionError(f"{name}: a state is float32, so that it is restored bit for bit")
    values = np.ascontiguousarray(tensor.detach().cpu().numpy())
    return StoredTensor(name, tuple(tensor.shape), "F32", values.reshape(-1).view(np.uint8))


def _others(path: Path, about: Path) -> list[Path]:
    """What lies in a folder beside a run's config."""
    own = {about.name, partial_path(about).name}
    found = path.iterdir() if path.is_dir() else ()
    return sorted(other for other in found if other.name not in own and not other.name.startswith("."))


def _config_of(path: Path, about: Path) -> Mapping[str, Any]:
    document = read_json_object(about) if about.exists() else {}
    if "config" not in document or "versions" not in document:
        found = next((other.name for other in _others(path, about)), about.name)
        raise ConfigError(f"{path} holds no run, but other files, such as {found}. Name a new folder, or an empty one.")
    config: Mapping[str, Any] = document["config"]
    return config


def _require_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if differing:
        shown = "; ".join(f"{key} was {old.get(key)!r} and is now {new.get(key)!r}" for key in differing)
        raise ConfigError(f"{path} holds a run with other settings: {shown}. Give them again, or another folder.")
