"""GGUF files: what is read, and that damage is named."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from headstart.checkpoint import open_checkpoint, packaged_model
from headstart.errors import CheckpointError, UnsupportedError
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [32, 64, 8])
def test_what_was_written_is_read(path: Path, version: int, alignment: int) -> None:
    metadata = {
        "general.alignment": alignment,
        "text": "größe",
        "yes": True,
        "negative": -3,
        "large": 1 << 40,
        "fraction": 0.25,
        "words": ["a", "", "ĠĠ"],
        "counts": np.array([1, 2, 3], np.int32),
        "flags": np.array([True, False]),
        "nested": [["a"], ["b", "c"]],
    }
    weights = np.arange(64, dtype=np.float32).reshape(2, 32)
    write_gguf(path, metadata, [make_tensor("a", weights, "Q8_0"), make_tensor("b", weights[0])], version=version)
    found = open_checkpoint(path)
    for key in ("text", "yes", "negative", "large", "fraction"):
        assert found.metadata[key] == metadata[key]
        assert type(found.metadata[key]) is type(metadata[key])
    assert found.metadata["words"] == ("a", "", "ĠĠ")
    assert found.metadata["nested"] == (("a",), ("b", "c"))
    assert np.array_equal(found.metadata["counts"], [1, 2, 3])
    assert found.metadata["flags"].dtype == np.bool_
    assert list(found.tensors) == ["a", "b"]
    assert found.tensors["a"].shape == (2, 32)  # row-major, though the file counts the fast axis first
    assert np.array_equal(found.tensors["b"].dequantize(), weights[0])


def test_tensors_are_mapped_and_read_only(path: Path) -> None:
    write_gguf(path, {}, [make_tensor("a", np.ones(4))])
    data = open_checkpoint(path).tensors["a"].data
    assert not data.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def rewritten(path: Path, old: bytes, new: bytes) -> Path:
    raw = path.read_bytes()
    assert raw.count(old) == 1
    path.write_bytes(raw.replace(old, new))
    return path


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"GGUF", b"GGML", "not a GGUF file"),
        (u64(2, 1), u64(1 << 60, 1), "number of tensors is 1152921504606846976"),
        (u64(2, 1), u64(2, 1 << 60), "number of key-values"),
        (u64(3) + b"key", u64(1 << 62) + b"key", "ends within the name of key-value 0"),
        (b"key" + struct.pack("<I", 4), b"key" + struct.pack("<I", 99), "value of key 'key' has the unknown type 99"),
        (b"weight" + struct.pack("<I", 2), b"weight" + struct.pack("<I", 5), "'weight' has 5 dimensions"),
        (u64(32, 2), u64(31, 2), "multiples of 32"),
        (u64(32, 2), u64(0, 2), "multiples of 32"),
        (u64(32, 2), u64(32, 1 << 62), "'weight' ends at byte"),
        (struct.pack("<IQ", 8, 0), struct.pack("<IQ", 8, 7), "no multiple of 32"),
        (struct.pack("<IQ", 0, 96), struct.pack("<IQ", 0, 64), "'weight' and 'bias' overlap"),
        (struct.pack("<IQ", 8, 0), struct.pack("<IQ", 8, 1 << 63), "'weight' ends at byte"),
    ],
)
def test_damage_is_named(path: Path, old: bytes, new: bytes, message: str) -> None:
    write_gguf(path, {"key": 5}, [make_tensor("weight", np.ones((2, 32)), "Q8_0"), make_tensor("bias", np.ones(7))])
    with pytest.raises((CheckpointError, UnsupportedError), match=message) as caught:
        open_checkpoint(rewritten(path, old, new))
    assert str(path) in str(caught.value)


def test_the_last_string_lies_within_the_file(path: Path) -> None:
    write_gguf(path, {"word": "text"})  # no tensors: nothing is read after it
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.index(b"text") + 3])
    with pytest.raises(CheckpointError, match="the file ends within the value of key 'word'"):
        open_checkpoint(path)


def test_names_occur_once(path: Path) -> None:
    write_gguf(path, {}, [make_tensor("same", np.ones(8)), make_tensor("same", np.ones(8))])
    with pytest.raises(CheckpointError, match="tensor 'same' occurs twice"):
        open_checkpoint(path)
    write_gguf(path, {"one": 1, "two": 2})
    with pytest.raises(CheckpointError, match="key 'one' occurs twice"):
        open_checkpoint(rewritten(path, b"two", b"one"))


@pytest.mark.parametrize("alignment", [0, 24, -8, "32", 16.0])
def test_alignment_is_a_power_of_two(path: Path, alignment: object) -> None:
    write_gguf(path, {"general.alignmenT": alignment})
    with pytest.raises(CheckpointError, match=r"general\.alignment is"):
        open_checkpoint(rewritten(path, b"alignmenT", b"alignment"))


def test_bools_are_zero_or_one(path: Path) -> None:
    write_gguf(path, {"flag": True})
    with pytest.raises(CheckpointError, match="bool of value 7"):
        open_checkpoint(rewritten(path, b"flag\x07\0\0\0\x01", b"flag\x07\0\0\0\x07"))


def test_names_are_utf8(path: Path) -> None:
    write_gguf(path, {"word": "text"})
    with pytest.raises(CheckpointError, match="value of key 'word' is not UTF-8"):
        open_checkpoint(rewritten(path, b"text", b"te\xff\xfe"))


def test_nesting_has_an_end(path: Path) -> None:
    deep: object = ["leaf"]
    for _ in range(6):
        deep = [deep]
    write_gguf(path, {"deep": deep})
    with pytest.raises(CheckpointError, match="nests arrays deeper than 4"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("version", "message"), [(1, "version 1; this build reads versions 2 and 3"), (0x03000000, "big-endian")]
)
def test_other_versions_are_refused(path: Path, version: int, message: str) -> None:
    write_gguf(path, {}, version=version)
    with pytest.raises(UnsupportedError, match=message):
        open_checkpoint(path)


def test_other_kinds_are_named(path: Path) -> None:
    write_gguf(path, {}, [make_tensor("weight", np.ones((1, 32)), "Q8_0")])
    with pytest.raises(UnsupportedError, match=r"'weight' has kind IQ4_XS; this build reads F32"):
        open_checkpoint(rewritten(path, struct.pack("<IQ", 8, 0), struct.pack("<IQ", 23, 0)))


def test_parts_of_a_split_model_are_refused(path: Path) -> None:
    write_gguf(path, {"split.count": 3})
    with pytest.raises(UnsupportedError, match="split over 3 files"):
        open_checkpoint(path)


def test_the_packaged_model_opens() -> None:
    try:
        source = packaged_model()
    except CheckpointError:
        pytest.skip("the packaged model is not installed")
    checkpoint = open_checkpoint(source)
    assert len(checkpoint.tensors) == 272
    assert checkpoint.tensors["token_embd.weight"].shape == (49152, 576)
    assert checkpoint.tensors["blk.0.ffn_down.weight"].kind == "Q4_1"
    assert checkpoint.metadata["llama.block_count"] == 30
