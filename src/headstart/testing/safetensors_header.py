"""Safetensors files that end where their data would begin: names and shapes of any model in kilobytes."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]

KIND_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1, "U8": 1, "I32": 4, "I64": 8, "BOOL": 1}


def write_safetensors_header(path: Path, shapes: Shapes, kinds: Mapping[str, str] | None = None) -> Path:
    """Write the header of a safetensors file, and nothing after it.

    Args:
        path: where to.
        shapes: of tensors, by name.
        kinds: number formats of tensors whose names end so; all others are BF16.

    Returns:
        `path`.
    """
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        kind = next((kind for ending, kind in (kinds or {}).items() if name.endswith(ending)), "BF16")
        begin, end = end, end + math.prod(shape) * KIND_BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path
