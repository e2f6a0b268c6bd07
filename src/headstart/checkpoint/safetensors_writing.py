"""Writes one safetensors file, whole or not at all. The reader is `safetensors`."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headstart.checkpoint.kinds import KINDS
from headstart.checkpoint.tensor import Tensor
from headstart.errors import CheckpointError

_ALIGNMENT = 8


def write_safetensors(path: Path, tensors: Iterable[Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors under a name that appears only when the file is complete.

    Args:
        path: where to; a file of that name is replaced.
        tensors: of kinds whose blocks are single values.
        metadata: texts for the header.

    Raises:
        CheckpointError: the file cannot be written.
    """
    # wide numbers first, so that each begins at a multiple of its width
    ordered = sorted(tensors, key=lambda tensor: (-KINDS[tensor.kind].block_bytes, tensor.name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for tensor in ordered:
        begin, end = end, end + tensor.data.nbytes
        header[tensor.name] = {"dtype": tensor.kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    raw = raw.ljust(-(-len(raw) // _ALIGNMENT) * _ALIGNMENT)  # with spaces, as the format allows
    unfinished = path.with_name(path.name + ".partial")
    try:
        with unfinished.open("wb") as file:
            file.write(struct.pack("<Q", len(raw)) + raw)
            for tensor in ordered:
                tensor.data.tofile(file)
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave the name with nothing behind it
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path}: the file cannot be written ({error}). Check that the folder exists, its permissions and the "
            "space that is left."
        ) from error
