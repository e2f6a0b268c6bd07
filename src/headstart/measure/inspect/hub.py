"""A checkpoint on the Hugging Face hub: config.json, the index, and the headers of its files, never the weights."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, cast

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.gguf import declared_gguf
from headstart.checkpoint.json_files import read_json_object
from headstart.checkpoint.safetensors import INDEX_NAME, SINGLE_NAME, is_weights_name
from headstart.errors import CheckpointError, HeadstartError, UnsupportedError
from headstart.measure.inspect.describe import (
    CONFIG_NAME,
    META_CONFIG_NAME,
    Description,
    index_bytes,
    index_map,
)

# the vocabulary of a GGUF file comes before the tensors' entries, so its header takes megabytes
_FIRST_READ_BYTES = 1 << 24
_LAST_READ_BYTES = 1 << 28
_PARALLEL_REQUESTS = 8


class Hub(Protocol):
    """What is asked of the hub: the part of `huggingface_hub.HfApi` that is used, and a ranged read."""

    def list_repo_files(self, repo_id: str, *, revision: str | None) -> Sequence[str]:
        """Names of all files."""

    def hf_hub_download(self, repo_id: str, filename: str, *, revision: str | None) -> str:
        """Fetch a small file whole, and say where it lies."""

    def parse_safetensors_file_metadata(self, repo_id: str, filename: str, *, revision: str | None) -> Any:
        """The header of a safetensors file, fetched alone."""

    def read_start(self, repo_id: str, filename: str, num_bytes: int, *, revision: str | None) -> bytes:
        """The first bytes of a file."""


def describe_hub(name: str, revision: str | None, hub: Hub | None = None) -> Description:
    """Read what the hub says of a checkpoint.

    Args:
        name: "organisation/model".
        revision: branch, tag or commit; the main branch by default.
        hub: whom to ask; the Hugging Face hub by default.

    Raises:
        CheckpointError: the hub does not give it, or what it gives is damaged.
        UnsupportedError: several GGUF files.
    """
    hub = _hugging_face() if hub is None else hub
    try:
        return _describe(name, revision, hub)
    except HeadstartError:
        raise
    except Exception as error:  # the library's own, the network's and the system's: all mean "not to be had"
        raise CheckpointError(
            f"{name}: no such path here, and the hub does not give it ({type(error).__name__}: {error}). "
            "Check the name, the network, and that you have access to the model."
        ) from error


def _describe(name: str, revision: str | None, hub: Hub) -> Description:
    files = [file for file in hub.list_repo_files(name, revision=revision) if "/" not in file]
    configs = [file for file in (CONFIG_NAME, META_CONFIG_NAME) if file in files]
    settings = read_json_object(Path(hub.hf_hub_download(name, configs[0], revision=revision))) if configs else {}
    total_bytes = None
    shards = [SINGLE_NAME] if SINGLE_NAME in files else [file for file in files if is_weights_name(file)]
    if INDEX_NAME in files:
        index = read_json_object(Path(hub.hf_hub_download(name, INDEX_NAME, revision=revision)))
        shards = sorted(set(index_map(index, f"{name}: {INDEX_NAME}").values()))
        total_bytes = index_bytes(index)
    if shards:
        # large models have hundreds of shards, each a request or two
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
            headers = list(pool.map(lambda shard: _header(name, shard, revision, hub), shards))
        tensors = {tensor.name: tensor for header in headers for tensor in header}
        return Description(
            where=name, path=None, format="safetensors", settings=settings, tensors=tensors, total_bytes=total_bytes
        )
    ggufs = [file for file in files if file.endswith(".gguf")]
    if len(ggufs) > 1:
        raise UnsupportedError(
            f"{name}: several GGUF files ({', '.join(ggufs)[:300]}), and a hub name says only which repository. Fetch "
            "one (hf download), and give its path."
        )
    if ggufs:
        return _gguf(name, ggufs[0], revision, hub)
    if settings:
        return Description(where=name, path=None, format="pickled", settings=settings)
    raise CheckpointError(f"{name}: the repository holds neither config.json nor weights. Check the name.")


def _header(name: str, file: str, revision: str | None, hub: Hub) -> list[DeclaredTensor]:
    header = hub.parse_safetensors_file_metadata(name, file, revision=revision)
    return [
        DeclaredTensor(key, str(entry.dtype), tuple(entry.shape), entry.data_offsets[1] - entry.data_offsets[0])
        for key, entry in header.tensors.items()
    ]


def _gguf(name: str, file: str, revision: str | None, hub: Hub) -> Description:
    num_bytes = _FIRST_READ_BYTES
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / file
        while True:
            start.write_bytes(hub.read_start(name, file, num_bytes, revision=revision))
            try:
                metadata, tensors = declared_gguf(start)
                break
            except CheckpointError:  # the header goes on, unless the file is damaged
                if start.stat().st_size < num_bytes or num_bytes >= _LAST_READ_BYTES:
                    raise
                num_bytes *= 2
    return Description(
        where=name, path=None, format="gguf", settings=metadata, tensors={tensor.name: tensor for tensor in tensors}
    )


def _hugging_face() -> Hub:
    from huggingface_hub import HfApi, HfFileSystem

    class HuggingFace(HfApi):  # type: ignore[misc, unused-ignore]
        def read_start(self, repo_id: str, filename: str, num_bytes: int, *, revision: str | None) -> bytes:
            with HfFileSystem().open(f"{repo_id}/{filename}", "rb", revision=revision, block_size=1 << 22) as file:
                return cast(bytes, file.read(num_bytes))

    return cast(Hub, HuggingFace())
