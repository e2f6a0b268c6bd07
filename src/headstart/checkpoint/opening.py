"""One door to every model: a GGUF file, a folder, or a name on the hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from headstart.checkpoint import gguf_tokenizer, huggingface_tokenizer
from headstart.checkpoint.gguf import read_gguf
from headstart.checkpoint.json_files import read_json_object
from headstart.checkpoint.safetensors import is_weights_name, read_safetensors_folder
from headstart.checkpoint.tensor import Tensor
from headstart.checkpoint.tokenizer import Tokenizer
from headstart.errors import CheckpointError, ConfigError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "tokenizer*")
_FILE_SUFFIXES = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth")
_SAMPLE_BYTES = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A model's files, opened: nothing of the weights has been read yet.

    Attributes:
        path: the GGUF file or the folder.
        format: "gguf" or "huggingface".
        metadata: the GGUF key-values (arrays of strings are tuples, arrays of
            numbers read-only numpy arrays), or the contents of config.json.
        generation_config: the contents of generation_config.json; empty if
            there is none.
        tensors: by name, memory mapped.
    """

    path: Path
    format: Literal["gguf", "huggingface"]
    metadata: Mapping[str, object]
    tensors: Mapping[str, Tensor]
    generation_config: Mapping[str, object]
    _tokenizer: Callable[[], Tokenizer] = field(repr=False)

    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; built at the first call.

        Raises:
            CheckpointError: the files hold none, or a damaged one.
            UnsupportedError: a kind of tokenizer that this build does not know.
        """
        return self._tokenizer()

    def digest(self) -> str:
        """A fingerprint of the weights: 32 hexadecimal digits.

        It covers every tensor's name, kind, shape and size, and the first and
        last kilobyte of its bytes, so it costs milliseconds. It tells models
        and fine-tunings apart; it is no proof against someone who alters a file
        on purpose. Metadata and tokenizer do not count.
        """
        state = hashlib.blake2b(digest_size=16)
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            state.update(repr((name, tensor.kind, tensor.shape, tensor.data.nbytes)).encode())
            state.update(tensor.data[:_SAMPLE_BYTES].tobytes())
            state.update(tensor.data[-_SAMPLE_BYTES:].tobytes())
        return state.hexdigest()


def open_checkpoint(source: str | Path, *, revision: str | None = None) -> Checkpoint:
    """Open a model.

    Args:
        source: a .gguf file; a folder with config.json and safetensors, or with
            exactly one .gguf; or, if neither that path nor the folder
            before its last part exists, a name "organisation/model" on the
            Hugging Face hub, the only case in which the network is used.
        revision: branch, tag or commit of a hub name.

    Raises:
        CheckpointError: nothing there, or the files are damaged.
        UnsupportedError: a format or number kind that this build does not read.
        ConfigError: a revision was given for a local path.

    Example:
        >>> open_checkpoint("model.gguf").tensors["token_embd.weight"].shape
        (49152, 576)
    """
    if not str(source):  # as a path it would mean this folder
        raise CheckpointError("The model's name is empty. Give a .gguf file, a folder, or a hub name.")
    path = Path(source)
    if _exists(path):
        if revision is not None:
            raise ConfigError(f"revision = {revision!r} has no effect: {path} is a local path. Leave it out.")
    elif is_hub_name(str(source)):
        path = _download(str(source), revision)
    else:
        raise CheckpointError(
            f"{source}: no such file or folder, and no hub name (organisation/model) either. "
            "Give a .gguf file, a folder with config.json and *.safetensors, or a hub name."
        )
    return _open_folder(path) if path.is_dir() else _open_gguf(path)


def is_hub_name(source: str) -> bool:
    """Whether a name that is no path here may be asked of the hub."""
    # A mistyped path must not turn into a request: "models/tiny.gguf" and "models/..." beside a folder are paths.
    looks_like_path = Path(source).suffix in _FILE_SUFFIXES or _exists(Path(source).parent)
    return _HUB_NAME.fullmatch(source) is not None and not looks_like_path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be searched
        return False


def _open_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    return Checkpoint(
        path=path,
        format="gguf",
        metadata=file.metadata,
        generation_config={},
        tensors=file.tensors,
        _tokenizer=cache(lambda: gguf_tokenizer.build_tokenizer(file.metadata, path)),
    )


def _open_folder(folder: Path) -> Checkpoint:
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"{folder}: the folder cannot be read ({error}). Check its permissions.") from error
    if "config.json" in names and any(map(is_weights_name, names)):
        return _open_huggingface(folder)
    gguf_names = sorted(name for name in names if name.endswith(".gguf"))
    if len(gguf_names) == 1:
        return _open_gguf(folder / gguf_names[0])
    if gguf_names:
        raise CheckpointError(f"{folder}: several models ({', '.join(gguf_names)}). Name one of the files.")
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        raise CheckpointError(
            f"{folder}: only pickled weights (.bin, .pt). They can run code, so they are never loaded; "
            "convert them to safetensors."
        )
    raise CheckpointError(f"{folder}: no model. Expected config.json with *.safetensors, or one .gguf file.")


def _open_huggingface(folder: Path) -> Checkpoint:
    config = read_json_object(folder / "config.json")
    generation_path = folder / "generation_config.json"
    generation_config = read_json_object(generation_path) if generation_path.is_file() else {}
    return Checkpoint(
        path=folder,
        format="huggingface",
        metadata=config,
        generation_config=generation_config,
        tensors=read_safetensors_folder(folder),
        _tokenizer=cache(lambda: huggingface_tokenizer.build_tokenizer(folder, config, generation_config)),
    )


def _download(name: str, revision: str | None) -> Path:
    # imported late: it takes longer than opening a local model
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            name,
            revision=revision,
            allow_patterns=list(_HUB_PATTERNS),
            ignore_patterns=["*/*", "consolidated*"],  # copies of the weights in other layouts
        )
    except Exception as error:  # the library's own, requests' and the operating system's: all mean "not to be had"
        raise CheckpointError(
            f"{name}: no such path here, and the hub does not give it ({type(error).__name__}: {error}). "
            "Check the name, the network, and that you have access to the model."
        ) from error
    return Path(folder)
