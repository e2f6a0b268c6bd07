"""Damaged and hostile files end in errors of ours, and streams equal decoding, whatever the bytes."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.checkpoint import StreamDecoder, open_checkpoint
from headstart.checkpoint.safetensors import read_safetensors
from headstart.errors import CheckpointError, UnsupportedError
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor

REFUSALS = (CheckpointError, UnsupportedError)
on_files = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

MAX_MEMORY_BYTES = 4 << 20  # thousands of times the files below


def small_gguf(path: Path, *, pieces: bool = False) -> bytes:
    """The bytes of a file with a value of every type, a vocabulary and tensors."""
    tokens = ["<unk>", "<s>", "a", "b", "ab", "é", "<0x0A>"]
    vocabulary: dict[str, object] = {
        "tokenizer.ggml.model": "llama" if pieces else "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([2, 3, 1, 1, 1, 4, 6], np.int32),
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
    }
    vocabulary |= (
        {"tokenizer.ggml.scores": np.arange(7, dtype=np.float32)} if pieces else {"tokenizer.ggml.merges": ["a b"]}
    )
    scalars = {"general.alignment": 32, "i": -1, "f": 0.5, "nested": [["x"], []], "flags": np.array([True])}
    tensors = [make_tensor("w", np.ones((2, 32)), "Q4_0"), make_tensor("v", np.ones(3))]
    write_gguf(path, {**scalars, **vocabulary}, tensors)
    return path.read_bytes()


def small_safetensors() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "v": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]},
    }
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(14)


def use_gguf(path: Path) -> None:
    """All that opening a model does with a file."""
    checkpoint = open_checkpoint(path)
    checkpoint.digest()
    for tensor in checkpoint.tensors.values():
        if tensor.kind not in ("F64", "I8", "I16", "I32", "I64"):
            tensor.dequantize()
    tokenizer = checkpoint.tokenizer()
    tokenizer.decode(tokenizer.encode("ab é\n"))


def use_safetensors(path: Path) -> None:
    for tensor in read_safetensors(path).values():
        if tensor.kind in ("F32", "F16", "BF16"):
            tensor.dequantize()


def survives(use: Callable[[Path], None], path: Path, raw: bytes) -> bool:
    """Whether the file is read; any error but a refusal goes through and fails the test."""
    path.write_bytes(raw)
    try:
        with np.errstate(all="ignore"):
            use(path)
    except REFUSALS:
        return False
    return True


@pytest.mark.parametrize("pieces", [False, True])
def test_every_truncation_of_a_gguf_file_is_refused(tmp_path: Path, pieces: bool) -> None:
    path = tmp_path / "m.gguf"
    raw = small_gguf(path, pieces=pieces)
    assert survives(use_gguf, path, raw)
    padding = 32 - 3 * 4  # after the last tensor, of no meaning
    accepted = [size for size in range(len(raw)) if survives(use_gguf, path, raw[:size])]
    assert accepted == list(range(len(raw) - padding, len(raw)))


def test_every_truncation_of_a_safetensors_file_is_refused(tmp_path: Path) -> None:
    path, raw = tmp_path / "m.safetensors", small_safetensors()
    assert survives(use_safetensors, path, raw)
    assert not [size for size in range(len(raw)) if survives(use_safetensors, path, raw[:size])]


@pytest.mark.parametrize("flip", [0x01, 0xFF])
@pytest.mark.parametrize("pieces", [False, True])
def test_any_byte_of_a_gguf_file_may_be_wrong(tmp_path: Path, flip: int, pieces: bool) -> None:
    path = tmp_path / "m.gguf"
    raw = small_gguf(path, pieces=pieces)
    for position in range(len(raw)):
        survives(use_gguf, path, raw[:position] + bytes([raw[position] ^ flip]) + raw[position + 1 :])


def edited(raw: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    out = bytearray(raw)
    for position, patch in edits:
        start = position % len(out)
        out[start : start + len(patch)] = patch
    return bytes(out)


LENGTHS = st.sampled_from([0, 1, 7, 255, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1])
PATCHES = st.one_of(st.binary(min_size=1, max_size=12), LENGTHS.map(lambda length: struct.pack("<Q", length)))
EDITS = st.lists(st.tuples(st.integers(0, 1 << 16), PATCHES), min_size=1, max_size=4)


@on_files
@given(edits=EDITS, pieces=st.booleans())
def test_edits_of_a_gguf_file(tmp_path: Path, edits: list[tuple[int, bytes]], pieces: bool) -> None:
    path = tmp_path / "m.gguf"
    survives(use_gguf, path, edited(small_gguf(path, pieces=pieces), edits))


@on_files
@given(edits=EDITS)
def test_edits_of_a_safetensors_file(tmp_path: Path, edits: list[tuple[int, bytes]]) -> None:
    survives(use_safetensors, tmp_path / "m.safetensors", edited(small_safetensors(), edits))


@on_files
@given(raw=st.binary(max_size=200))
def test_anything_may_come_as_a_file(tmp_path: Path, raw: bytes) -> None:
    survives(use_gguf, tmp_path / "m.gguf", raw)
    survives(use_gguf, tmp_path / "m.gguf", b"GGUF\x03\0\0\0" + raw)
    survives(use_safetensors, tmp_path / "m.safetensors", raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
SIZES = st.integers(-2, 4) | st.sampled_from([1 << 31, 1 << 62, 1 << 64])
ENTRIES = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "BF16", "I8", "Q4_0", "X"]), "shape": st.lists(SIZES, max_size=40)},
    optional={"data_offsets": st.lists(SIZES, max_size=3)},
)


@on_files
@given(header=st.dictionaries(st.text(max_size=3), JSON | ENTRIES, max_size=3), data=st.binary(max_size=32))
def test_any_header_of_a_safetensors_file(tmp_path: Path, header: dict[str, Any], data: bytes) -> None:
    raw = json.dumps(header).encode()
    survives(use_safetensors, tmp_path / "m.safetensors", struct.pack("<Q", len(raw)) + raw + data)


@pytest.mark.parametrize("length", [1 << 24, (1 << 64) - 1])
def test_a_false_length_allocates_nothing(tmp_path: Path, length: int) -> None:
    path = tmp_path / "m.gguf"
    raw = small_gguf(path)
    patch = struct.pack("<Q", length)
    tracemalloc.start()
    for position in range(8, len(raw) - 8):
        survives(lambda path: open_checkpoint(path) and None, path, raw[:position] + patch + raw[position + 8 :])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MAX_MEMORY_BYTES


@given(
    raw=st.lists(
        st.binary(max_size=3) | st.sampled_from([b" ", b" a", b"\xf0\x9f", b"\xa4\x97", b"\xc3"]), max_size=12
    ),
    cuts=st.lists(st.integers(0, 5), max_size=12),
    strips_first_space=st.booleans(),
)
def test_a_stream_in_any_portions_equals_decoding_at_once(
    raw: list[bytes], cuts: list[int], strips_first_space: bool
) -> None:
    def text_of(portions: list[list[int]]) -> str:
        stream = StreamDecoder(raw.__getitem__, strips_first_space=strips_first_space)
        return "".join(map(stream.push, portions)) + stream.finish()

    ids = list(range(len(raw)))
    portions: list[list[int]] = []
    rest = ids
    for cut in cuts:
        portions.append(rest[:cut])
        rest = rest[cut:]
    whole = b"".join(raw)
    expected = whole.removeprefix(b" ") if strips_first_space else whole
    assert text_of([*portions, rest]) == text_of([ids]) == expected.decode(errors="replace")
