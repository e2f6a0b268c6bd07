"""A checkpoint as its settings and headers describe it; weights are neither loaded nor needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.gguf import MAGIC, declared_gguf
from headstart.checkpoint.json_files import read_json_object
from headstart.checkpoint.opening import is_hub_name
from headstart.checkpoint.safetensors import INDEX_NAME, SINGLE_NAME, declared_safetensors, is_weights_name
from headstart.errors import CheckpointError, ConfigError
from headstart.measure.inspect.engines import FileFormat

CONFIG_NAME = "config.json"
# what Meta's own checkpoints have in place of config.json
META_CONFIG_NAME = "params.json"
_PICKLED = (".bin", ".pt", ".pth")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Description:
    """What files say of a checkpoint.

    Attributes:
        where: the path or hub name, as given.
        path: the local file or folder; `None` on the hub.
        format: of the weights.
        settings: config.json, or the key-values of a GGUF file; empty if there are none.
        tensors: by name; `None` if no header could be read, as of pickled weights.
        has_shapes: whether shapes and sizes are known, not names alone.
        total_bytes: of all weights, where an index says so and headers do not.
        absent_files: shards of an index that are not there.
        unlisted_files: weights beside an index that it does not name.
    """

    where: str
    path: Path | None
    format: FileFormat
    settings: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, DeclaredTensor] | None = None
    has_shapes: bool = True
    total_bytes: int | None = None
    absent_files: tuple[str, ...] = ()
    unlisted_files: tuple[str, ...] = ()


def describe(source: str | Path, *, revision: str | None = None) -> Description:
    """Read what there is to read of a checkpoint without its weights.

    Args:
        source: a folder with config.json, safetensors or their index alone; a safetensors or GGUF file, or the
            beginning of one that holds its header; or, if no such path exists, a name "organisation/model" on the
            hub, the only case in which the network is used.
        revision: branch, tag or commit of a hub name.

    Raises:
        CheckpointError: nothing there, or what is there is damaged.
        UnsupportedError: a version of GGUF that this build does not read.
        ConfigError: a revision was given for a local path.
    """
    path = Path(source)
    if str(source) and path.exists():
        if revision is not None:
            raise ConfigError(f"revision = {revision!r} has no effect: {path} is a local path. Leave it out.")
        return _folder(path) if path.is_dir() else _file(path)
    if str(source) and is_hub_name(str(source)):
        from headstart.measure.inspect.hub import describe_hub  # it brings the network's libraries

        return describe_hub(str(source), revision)
    raise CheckpointError(
        f"{str(source)!r}: no such file or folder, and no hub name (organisation/model) either. Give a folder with "
        "config.json, a .safetensors or .gguf file, or a hub name."
    )


def _file(path: Path) -> Description:
    if path.suffix in _PICKLED:
        return Description(where=str(path), path=path, format="pickled", settings=_settings(path.parent))
    if path.suffix == ".json":
        raise CheckpointError(
            f"{path}: a JSON file alone is no checkpoint. Give the folder that it lies in; an index and config.json "
            "are enough."
        )
    if path.suffix == ".gguf" or _begins_with_magic(path):
        return _gguf(path)
    tensors = {tensor.name: tensor for tensor in declared_safetensors(path)}
    return Description(
        where=str(path), path=path, format="safetensors", settings=_settings(path.parent), tensors=tensors
    )


def _begins_with_magic(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise CheckpointError(
            f"{path}: the file cannot be read ({error}). Check the path and its permissions."
        ) from error


def _folder(folder: Path) -> Description:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise CheckpointError(f"{folder}: the folder cannot be read ({error}). Check its permissions.") from error
    if INDEX_NAME in names:
        return _indexed(folder, set(names))
    weights = [name for name in names if is_weights_name(name)]
    if SINGLE_NAME in weights:
        weights = [SINGLE_NAME]
    if weights:
        tensors = {tensor.name: tensor for name in weights for tensor in declared_safetensors(folder / name)}
        return Description(
            where=str(folder), path=folder, format="safetensors", settings=_settings(folder), tensors=tensors
        )
    ggufs = [name for name in names if name.endswith(".gguf")]
    firsts = [name for name in ggufs if (part := _PART.fullmatch(name)) is None or int(part["number"]) == 1]
    if len(firsts) == 1:
        return _gguf(folder / firsts[0])
    if ggufs:
        raise CheckpointError(f"{folder}: several models ({', '.join(ggufs)[:300]}). Name one of the files.")
    if settings := _settings(folder):
        return Description(where=str(folder), path=folder, format="pickled", settings=settings)
    raise CheckpointError(
        f"{folder}: no checkpoint. Expected config.json, *.safetensors or {INDEX_NAME}, or a .gguf file."
    )


def _settings(folder: Path) -> dict[str, Any]:
    for name in (CONFIG_NAME, META_CONFIG_NAME):
        if (folder / name).is_file():
            return read_json_object(folder / name)
    return {}


def _indexed(folder: Path, names: set[str]) -> Description:
    index = read_json_object(folder / INDEX_NAME)
    weight_map = index_map(index, str(folder / INDEX_NAME))
    shards = sorted(set(weight_map.values()))
    there = [shard for shard in shards if shard in names]
    tensors = {tensor.name: tensor for shard in there for tensor in declared_safetensors(folder / shard)}
    has_shapes = len(there) == len(shards)
    if has_shapes:
        if lost := sorted(set(weight_map) - set(tensors)):
            raise CheckpointError(
                f"{folder / INDEX_NAME}: {len(lost)} tensors are not in the shards where the index says they are, "
                f"such as {lost[0]!r}. The files do not belong together; fetch them again."
            )
        tensors = {name: tensors[name] for name in weight_map}
    else:
        tensors = names_alone(weight_map)
    return Description(
        where=str(folder),
        path=folder,
        format="safetensors",
        settings=_settings(folder),
        tensors=tensors,
        has_shapes=has_shapes,
        total_bytes=index_bytes(index),
        absent_files=tuple(shard for shard in shards if shard not in names),
        unlisted_files=tuple(sorted(name for name in names.difference(shards) if is_weights_name(name))),
    )


def index_map(index: Mapping[str, Any], where: str) -> dict[str, str]:
    """The files of tensors, as an index has them.

    Raises:
        CheckpointError: it is no index, or names files elsewhere.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(file, str) and Path(file).name == file for file in weight_map.values()
    ):
        raise CheckpointError(f"{where}: weight_map is not an object of plain file names. Fetch the file again.")
    return weight_map


def index_bytes(index: Mapping[str, Any]) -> int | None:
    """The size of all weights, if an index says it."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    return int(total) if isinstance(total, int | float) and total > 0 else None


def names_alone(names: Mapping[str, object]) -> dict[str, DeclaredTensor]:
    """Tensors of which nothing is known but the names."""
    return {name: DeclaredTensor(name, "", (), 0) for name in names}


def _gguf(path: Path) -> Description:
    settings: Mapping[str, Any]
    settings, declared = declared_gguf(path)
    tensors = {tensor.name: tensor for tensor in declared}
    count = settings.get("split.count", 1)
    match = _PART.fullmatch(path.name)
    absent = []
    if isinstance(count, int) and count > 1 and match is not None:
        for number in range(1, count + 1):
            part = path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}.gguf")
            if not part.is_file():
                absent.append(part.name)
                continue
            metadata, declared = declared_gguf(part)
            tensors |= {tensor.name: tensor for tensor in declared}
            settings = metadata if number == 1 else settings
    return Description(
        where=str(path),
        path=path,
        format="gguf",
        settings=settings,
        tensors=None if absent else tensors,
        absent_files=tuple(absent),
    )
