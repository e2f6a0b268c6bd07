from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.safetensors import INDEX_NAME
from headstart.measure.inspect import Report, inspect_checkpoint

Shapes = Mapping[str, tuple[int, ...]]
Inspect = Callable[..., Report]

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1, "U8": 1, "I32": 4, "I64": 8, "BOOL": 1}


def write_header(
    path: Path, shapes: Shapes, kinds: Mapping[str, str], *, metadata: dict[str, str] | None = None
) -> Path:
    """A safetensors file of true names and shapes that ends where its data would begin."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, shape in shapes.items():
        kind = next((kind for suffix, kind in kinds.items() if name.endswith(suffix)), kinds.get("*", "BF16"))
        begin, end = end, end + math.prod(shape) * BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


@pytest.fixture
def inspect_files(tmp_path: Path) -> Inspect:
    """Writes config.json and the headers of a model, and inspects the folder."""

    def write_and_inspect(
        config: Mapping[str, Any] | None,
        shapes: Shapes | None,
        *,
        kinds: Mapping[str, str] | None = None,
        index_only: bool = False,
    ) -> Report:
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config))
        if index_only:
            weight_map = dict.fromkeys(shapes or (), "model-00001-of-00001.safetensors")
            index = {"metadata": {"total_size": 1234}, "weight_map": weight_map}
            (tmp_path / INDEX_NAME).write_text(json.dumps(index))
        elif shapes is not None:
            write_header(tmp_path / "model.safetensors", shapes, kinds or {})
        return inspect_checkpoint(tmp_path)

    return write_and_inspect


@pytest.fixture
def declared() -> Callable[..., dict[str, DeclaredTensor]]:
    """Tensors of a header, from names and shapes."""

    def make(shapes: Shapes, kind: str = "BF16") -> dict[str, DeclaredTensor]:
        return {
            name: DeclaredTensor(name, kind, shape, math.prod(shape) * BYTES[kind]) for name, shape in shapes.items()
        }

    return make
