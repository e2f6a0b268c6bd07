from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.safetensors import INDEX_NAME
from headstart.measure.inspect import Report, inspect_checkpoint
from headstart.testing.safetensors_header import KIND_BYTES, Shapes, write_safetensors_header

Inspect = Callable[..., Report]


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
            write_safetensors_header(tmp_path / "model.safetensors", shapes, kinds)
        return inspect_checkpoint(tmp_path)

    return write_and_inspect


@pytest.fixture
def declared() -> Callable[..., dict[str, DeclaredTensor]]:
    """Tensors of a header, from names and shapes."""

    def make(shapes: Shapes, kind: str = "BF16") -> dict[str, DeclaredTensor]:
        return {
            name: DeclaredTensor(name, kind, shape, math.prod(shape) * KIND_BYTES[kind])
            for name, shape in shapes.items()
        }

    return make
