"""Where training stands, on disk: one file of one process, or a folder of sharded files of several.

Both are safetensors, replaced as a whole. What several processes wrote, another number of them can go on from, and one
alone; and the other way round.

    RUN/state.safetensors                of one process
    RUN/state/shard-*.safetensors        of several, by PyTorch's distributed checkpoints
    RUN/state/progress.json              with digests of all that is there; the library would take what is left of it
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from headstart.checkpoint.json_files import read_json_object
from headstart.errors import CheckpointError
from headstart.train.pretrain.team import Team, spread_like
from headstart.train.run_directory import STATE_NAME, RunDirectory
from headstart.train.whole_files import settle, write_whole

_FOLDER, _NEXT, _BEFORE, _DOOMED = "state", "state.next", "state.before", "state.doomed"
_ABOUT_NAME = "progress.json"
_DIGESTS, _PROGRESS = "digests", "progress"

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and plain data."""


class StateStore:
    """The state in a run's folder."""

    def __init__(self, run: RunDirectory, team: Team) -> None:
        """For all processes of a run."""
        self._run, self._team = run, team
        self._folder = run.path / _FOLDER

    def save(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Replace the state.

        Args:
            tensors: float32; sharded alike in all processes.
            progress: plain JSON data.

        Raises:
            CheckpointError: it cannot be written.
        """
        if self._team.size == 1:
            self._run.save(tensors, progress)
            for older in (_BEFORE, _FOLDER):
                self._drop(older)
            return
        following = self._run.path / _NEXT
        if self._team.leads:
            shutil.rmtree(following, ignore_errors=True)
        self._team.wait()
        try:
            writer = HuggingFaceStorageWriter(str(following), save_distributed=True)
            save_shards(dict(tensors), storage_writer=writer)
            digests = self._team.gather(_digests(self._share(sorted(following.glob("*.safetensors")))))
            if self._team.leads:
                about = {_DIGESTS: digests | {_PROGRESS: _digest_of(progress)}, _PROGRESS: progress}
                write_whole(following / _ABOUT_NAME, json.dumps(about) + "\n")
                settle(following)
                self._replace(following)
        except (OSError, CheckpointException) as error:
            raise CheckpointError(
                f"{following}: the state cannot be written ({error}). Check the folder's permissions and the space "
                "that is left."
            ) from error
        self._team.wait()

    def _drop(self, name: str) -> None:
        """Remove a folder that `load` looks for; a kill meanwhile leaves nothing under its name that is not whole."""
        folder, doomed = self._run.path / name, self._run.path / _DOOMED
        shutil.rmtree(doomed, ignore_errors=True)
        if folder.exists():
            os.replace(folder, doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def _replace(self, following: Path) -> None:
        if self._folder.exists():
            self._drop(_BEFORE)
            os.replace(self._folder, self._run.path / _BEFORE)
        # a kill between these two leaves the state under its other name, where `load` finds it
        os.replace(following, self._folder)
        settle(self._run.path)
        self._drop(_BEFORE)
        (self._run.path / STATE_NAME).unlink(missing_ok=True)

    def load(self, like: Callable[[str], Tensor]) -> State | None:
        """What was saved last, sharded over the processes of now; `None` if nothing was.

        Args:
            like: a tensor of the shape, device and sharding that one of a name is to have.

        Raises:
            CheckpointError: the state is damaged.
        """
        folder = next((path for path in (self._folder, self._run.path / _BEFORE) if path.exists()), None)
        if folder is not None:
            return self._read_folder(folder, like)
        saved = self._run.load()
        if saved is None or self._team.size == 1:
            return saved
        tensors, progress = saved
        return {name: spread_like(tensor, like(name)) for name, tensor in tensors.items()}, progress

    def _read_folder(self, folder: Path, like: Callable[[str], Tensor]) -> State:
        about = read_json_object(folder / _ABOUT_NAME)
        written, progress = about.get(_DIGESTS), about.get(_PROGRESS)
        if not isinstance(written, dict) or not isinstance(progress, dict):
            raise CheckpointError(f"{folder}: {_ABOUT_NAME} is none of a state. Remove the folder to begin anew.")
        own = self._share([folder / name for name in sorted(written.keys() - {_PROGRESS})])
        found = self._team.gather(_digests([path for path in own if path.exists()]))
        found[_PROGRESS] = _digest_of(progress)
        damaged = [name for name in sorted(written) if found.get(name) != written[name]]
        if damaged:
            raise CheckpointError(
                f"{folder}: the state is damaged, for {damaged[0]} is missing or not what was written. Remove the "
                "folder to begin anew."
            )
        return _read_shards(folder, like), progress

    def _share(self, files: Sequence[Path]) -> Sequence[Path]:
        """Those that this process looks after."""
        return files[self._team.rank :: self._team.size]


def _digests(files: Sequence[Path]) -> dict[str, str]:
    """Of each file, once it is on the disk."""
    found = {}
    for path in files:
        settle(path)
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, _new_digest).hexdigest()
    return found


def _digest_of(progress: Mapping[str, Any]) -> str:
    state = _new_digest()
    state.update(json.dumps(progress).encode())
    return state.hexdigest()


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)


def _read_shards(folder: Path, like: Callable[[str], Tensor]) -> dict[str, Tensor]:
    try:
        reader = HuggingFaceStorageReader(str(folder))
        tensors = {name: like(name) for name in reader.read_metadata().state_dict_metadata}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # by one process alone
            load_shards(
                tensors,
                storage_reader=HuggingFaceStorageReader(str(folder)),
                no_dist=not distributed.is_initialized(),
            )
    except (Exception, CheckpointException) as error:  # of many kinds: all mean that the files cannot be used
        raise CheckpointError(
            f"{folder}: the state cannot be read ({type(error).__name__}: {error}). Remove the folder to begin anew."
        ) from error
    return tensors
