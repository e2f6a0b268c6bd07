"""safetensors: single files, shards, and damage."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from headstart.checkpoint.safetensors import INDEX_NAME, read_safetensors, read_safetensors_folder
from headstart.errors import CheckpointError, UnsupportedError

ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def write(path: Path, header: Mapping[str, Any] | bytes, data: bytes) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def test_what_the_library_wrote_is_read(tmp_path: Path) -> None:
    arrays = {
        "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "layer.half": np.array([0.5, -2], np.float16),
        "map": np.array([3, 1], np.int64),
        "scalar": np.array(2, np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }
    save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tensors = read_safetensors_folder(tmp_path)
    assert set(tensors) == set(arrays)
    for name in ("layer.weight", "layer.half", "scalar", "empty"):
        assert np.array_equal(tensors[name].dequantize(), arrays[name].astype(np.float32))
        assert tensors[name].shape == arrays[name].shape
    assert tensors["map"].kind == "I64"
    assert not tensors["layer.weight"].data.flags.owndata


def test_bf16(tmp_path: Path) -> None:
    path = write(tmp_path / "m", {"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"\x80\x3f\x00\xc0")
    assert read_safetensors(path)["w"].dequantize().tolist() == [1, -2]


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"w": ONE}, bytes(7), "'w' ends at byte"),
        ({"w": ONE}, bytes(9), "the tensors end at byte"),
        ({"w": {**ONE, "shape": [3]}}, bytes(8), "'w' has 8 bytes, but F32"),
        ({"w": {**ONE, "data_offsets": [4, 12]}}, bytes(12), "'w' begins at byte 4"),
        ({"a": ONE, "b": ONE}, bytes(8), "'b' begins at byte 0 of the data, but the one before it ends at 8"),
        ({"w": {**ONE, "shape": [-2, -1]}}, bytes(8), "'w' is malformed"),
        ({"w": {**ONE, "shape": [2.0]}}, bytes(8), "'w' is malformed"),
        ({"w": {**ONE, "data_offsets": [0]}}, bytes(8), "'w' is malformed"),
        ({"w": {"dtype": "F32"}}, b"", "'w' is malformed"),
        ({"w": 3}, b"", "'w' is not an object"),
        ({"w": {"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}}, b"", "'w' has the shape"),
        (b"[]", b"", "holds a list"),
        (b"{", b"", "not valid JSON"),
        (b'{"w": \xff}', b"", "not valid JSON"),
        (b"[" * 100_000, b"", "not valid JSON"),
        (json.dumps({"w": ONE})[:-1].encode() + b", " + json.dumps({"w": ONE})[1:].encode(), bytes(8), "occurs twice"),
    ],
)
def test_damage_is_named(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    path = write(tmp_path / "model.safetensors", header, data)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"\0\0", struct.pack("<Q", 1 << 60) + b"{}"])
def test_a_header_lies_within_the_file(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "m"
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"cannot be read|bytes"):
        read_safetensors(path)


def test_unknown_formats_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m", {"w": {**ONE, "dtype": "F4"}}, bytes(8))
    with pytest.raises(UnsupportedError, match="'w' has dtype F4; this build reads F32, F16, BF16"):
        read_safetensors(path)


def write_shards(folder: Path, weight_map: object) -> None:
    save_file({"a": np.ones(2, np.float32)}, folder / "one.safetensors")
    save_file({"b": np.zeros(2, np.float32)}, folder / "two.safetensors")
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map}))


def test_shards(tmp_path: Path) -> None:
    write_shards(tmp_path, {"b": "two.safetensors", "a": "one.safetensors"})
    assert list(read_safetensors_folder(tmp_path)) == ["b", "a"]


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "two.safetensors"}, "'a' is not in two.safetensors"),
        ({"a": "three.safetensors"}, "three.safetensors: the file cannot be read"),
        ({"a": "../one.safetensors"}, "no plain file name"),
        ({"a": "/etc/passwd"}, "no plain file name"),
        ({"a": 1}, "not an object of file names"),
        (None, "not an object of file names"),
    ],
)
def test_an_index_is_held_to_its_word(tmp_path: Path, weight_map: object, message: str) -> None:
    write_shards(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match=message):
        read_safetensors_folder(tmp_path)


def test_without_an_index_one_file_is_expected(tmp_path: Path) -> None:
    write_shards(tmp_path, {})
    (tmp_path / INDEX_NAME).unlink()
    with pytest.raises(CheckpointError, match=r"found one\.safetensors, two\.safetensors"):
        read_safetensors_folder(tmp_path)
    (tmp_path / "two.safetensors").unlink()
    assert list(read_safetensors_folder(tmp_path)) == ["a"]
