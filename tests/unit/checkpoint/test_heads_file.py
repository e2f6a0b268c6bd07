"""The heads file by itself: what is written comes back, and what is wrong is named."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from headstart.checkpoint.bfloat16 import round_to_bfloat16
from headstart.checkpoint.heads_file import HeadsFile, HeadsHeader, open_heads, write_heads
from headstart.checkpoint.safetensors import read_safetensors
from headstart.checkpoint.trunk_identity import TrunkIdentity
from headstart.errors import CheckpointError, ConfigError

TRUNK = TrunkIdentity(
    name="Tiny",
    weights_digest="1" * 32,
    norms_digest="2" * 32,
    vocabulary_digest="3" * 32,
    template_digest=None,
    vocab_size=300,
    hidden_size=64,
    num_layers=2,
)
HEADER = HeadsHeader(
    heads={"kind": "eagle3", "taps": [1, 2]},
    trunk=TRUNK,
    recipe={"steps": 3, "text": {"tokens": 10}},
    measured={"acceptance": {"maths": 3.25}},
)
VOCABULARY = np.array([299, 0, 7], np.int32)


def some_weights(seed: int = 0) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    random = np.random.default_rng(seed)
    return {
        "block.mlp.up": random.normal(0, 0.05, (5, 64)).astype(np.float32),
        "fuse": random.normal(0, 1, (3, 32)).astype(np.float32),
        "final_norm": random.normal(1, 0.3, 7).astype(np.float32),
    }


def written(path: Path, storage: Any = "int8") -> HeadsFile:
    write_heads(path, HEADER, some_weights(), VOCABULARY, storage)
    return open_heads(path)


# ---- what is written comes back ---------------------------------------------------------------


def test_everything_said_comes_back(tmp_path: Path) -> None:
    file = written(tmp_path / "x.heads.safetensors")
    assert file.header == HEADER
    assert file.vocabulary is not None
    assert file.vocabulary.tolist() == VOCABULARY.tolist()
    assert file.shapes == {name: values.shape for name, values in some_weights().items()}


def test_a_whole_vocabulary_is_none(tmp_path: Path) -> None:
    write_heads(tmp_path / "x", HEADER, some_weights())
    assert open_heads(tmp_path / "x").vocabulary is None


@pytest.mark.parametrize("storage", ["f32", "f16", "bf16"])
def test_floats_come_back_bit_for_bit(tmp_path: Path, storage: str) -> None:
    file = written(tmp_path / "x", storage)
    narrowed: dict[str, Callable[[Any], Any]] = {
        "f32": lambda values: values,
        "f16": lambda values: values.astype(np.float16).astype(np.float32),
        "bf16": lambda values: (round_to_bfloat16(values).astype(np.uint32) << 16).view(np.float32),
    }
    for name, values in some_weights().items():
        expected = values if values.ndim == 1 else narrowed[storage](values)
        assert file.tensor(name).dequantize().tobytes() == expected.tobytes()


def test_int8_is_codes_and_scales_and_comes_back_as_q8_0(tmp_path: Path) -> None:
    file = written(tmp_path / "x", "int8")
    stored = read_safetensors(tmp_path / "x")
    for name, values in some_weights().items():
        tensor = file.tensor(name)
        if values.ndim == 1:
            assert tensor.kind == "F32"
            assert tensor.dequantize().tobytes() == values.tobytes()
            continue
        codes = stored[name].data.view(np.int8).reshape(values.shape)
        scales = stored[f"{name}.scales"].data.view(np.float16).reshape(len(values), -1).astype(np.float32)
        assert tensor.kind == "Q8_0"
        assert tensor.dequantize().tobytes() == (codes * np.repeat(scales, 32, axis=1)).astype(np.float32).tobytes()


def test_int8_of_what_int8_holds_changes_nothing(tmp_path: Path) -> None:
    first = written(tmp_path / "first")
    held = {name: first.tensor(name).dequantize() for name in first.shapes}
    write_heads(tmp_path / "second", HEADER, held, VOCABULARY, "int8")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_the_library_reads_the_file(tmp_path: Path) -> None:
    written(tmp_path / "x", "f32")
    with safe_open(tmp_path / "x", "numpy") as file:
        assert json.loads(file.metadata()["headstart"])["trunk"]["name"] == "Tiny"
        read = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the library's own
    assert read.pop("vocabulary").tolist() == VOCABULARY.tolist()
    assert {name: values.tobytes() for name, values in read.items()} == {
        name: values.tobytes() for name, values in some_weights().items()
    }


# ---- writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "vocabulary", "storage", "message"),
    [
        ({"w": np.ones((2, 32), np.float64)}, None, "f32", "'w' is float64"),
        ({"w": np.ones((2, 2, 2), np.float32)}, None, "f32", r"'w' is float32 \[2, 2, 2\]"),
        ({"w": np.ones((0, 2), np.float32)}, None, "f32", r"'w' is float32 \[0, 2\]"),
        ({"w.scales": np.ones((2, 32), np.float32)}, None, "f32", "must not end in '.scales'"),
        ({"w": np.full((2, 32), np.nan, np.float32)}, None, "f32", "'w' has values that are not finite"),
        ({"b": np.full(2, np.inf, np.float32)}, None, "int8", "'b' has values that are not finite"),
        ({"w": np.full((2, 32), 7e4, np.float32)}, None, "f16", r"'w' reaches 7e\+04, which f16 cannot hold"),
        ({"w": np.full((2, 32), 3.4e38, np.float32)}, None, "bf16", "which bf16 cannot hold"),
        ({"w": np.full((2, 32), 1e7, np.float32)}, None, "int8", "which int8 cannot hold"),
        ({"w": np.ones((2, 48), np.float32)}, None, "int8", "'w' has 48 inputs"),
        ({}, None, "q4", "storage = 'q4': it must be one of f32, f16, bf16, int8"),
        ({"vocabulary": np.ones(2, np.float32)}, None, "f32", "'vocabulary': the name is taken"),
        ({}, np.array([0, 300], np.int32), "f32", "has token id 300, but the trunk has 300 tokens"),
        ({}, np.array([0, -1], np.int32), "f32", "has token id -1"),
        ({}, np.array([4, 5, 4], np.int32), "f32", "has token id 4 more than once"),
        ({}, np.array([1], np.int64), "f32", r"is int64 \[1\]"),
        ({}, np.zeros(0, np.int32), "f32", r"is int32 \[0\]"),
    ],
)
def test_what_the_file_could_not_hold_is_refused(
    tmp_path: Path, weights: Any, vocabulary: Any, storage: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        write_heads(tmp_path / "x", HEADER, weights, vocabulary, storage)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("recipe", [{"loss": float("nan")}, {"path": Path("x")}])
def test_a_recipe_is_json(tmp_path: Path, recipe: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        write_heads(tmp_path / "x", replace(HEADER, recipe=recipe), some_weights())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    written(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot be written .*No space left"):
        write_heads(path, HEADER, some_weights(1))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_heads(tmp_path / "none" / "x", HEADER, some_weights())


# ---- reading what is wrong --------------------------------------------------------------------


def parts(path: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """A file's header of tensors, its description of heads, and its data."""
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    return header, json.loads(header.pop("__metadata__")["headstart"]), raw[8 + size :]


def rewrite(path: Path, header: dict[str, Any], description: object, data: bytes) -> None:
    text = description if isinstance(description, str) else json.dumps(description)
    raw = json.dumps({"__metadata__": {"headstart": text}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def changed(place: str, value: object) -> Callable[[dict[str, Any]], None]:
    """An edit of a description: `place` is a key, or two with a dot between."""

    def edit(description: dict[str, Any]) -> None:
        outer, _, inner = place.partition(".")
        where, key = (description[outer], inner) if inner else (description, outer)
        where[key] = value
        if value is None:
            del where[key]

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (changed("format_version", 2), "has format version 2, written by version 0.* reads format 1"),
        (changed("format_version", True), "has format version True"),
        (changed("format_version", None), "has format version None"),
        (changed("heads", None), "heads missing"),
        (changed("recipe", None), "recipe missing"),
        (changed("colour", "red"), "colour unknown"),
        (changed("heads", [1]), "heads is not an object"),
        (changed("library_version", 1), "library_version is not a string"),
        (changed("trunk", "Tiny"), "trunk is not an object"),
        (changed("trunk.norms_digest", None), "norms_digest missing"),
        (changed("trunk.age", 3), "age unknown"),
        (changed("trunk.vocab_size", 0), "vocab_size = '0': it must be a positive whole number"),
        (changed("trunk.hidden_size", 64.0), "hidden_size = '64.0'"),
        (changed("trunk.weights_digest", 5), "weights_digest = '5': it must be a string"),
        (changed("trunk.vocab_size", 200), "has token id 299, but the trunk has 200 tokens"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str) -> None:
    path = tmp_path / "x"
    written(path)
    header, description, data = parts(path)
    edit(description)
    rewrite(path, header, description, data)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_heads(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"), [("", "not valid JSON"), ("[]", "holds a list"), ("{}", "format version")]
)
def test_a_description_is_a_json_object(tmp_path: Path, text: str, message: str) -> None:
    rewrite(tmp_path / "x", {}, text, b"")
    with pytest.raises(CheckpointError, match=message):
        open_heads(tmp_path / "x")


def with_tensors(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> Path:
    """A heads file with zeros as tensors: dtype, shape and number of bytes of each."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    write_heads(path, HEADER, {})
    rewrite(path, header, parts(path)[1], bytes(end))
    return path


CODES = ("I8", [2, 64], 128)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"w": CODES}, r"'w\.scales', the scales of 'w', are missing"),
        ({"w.scales": ("F16", [2, 2], 8)}, r"'w\.scales' are scales without a matrix"),
        ({"w": ("F32", [1, 2], 8), "w.scales": ("F16", [2, 2], 8)}, r"'w\.scales' are scales without a matrix"),
        ({"w": CODES, "w.scales": ("F32", [2, 2], 16)}, r"'w\.scales' has dtype F32; allowed: F16"),
        ({"w": CODES, "w.scales": ("F16", [4], 8)}, r"shape \[2, 64\] and its scales \[4\]"),
        ({"w": ("I8", [1, 40], 40), "w.scales": ("F16", [1, 1], 2)}, r"shape \[1, 40\] and its scales"),
        ({"w": ("F64", [1, 2], 16)}, "'w' has dtype F64; allowed: F32, F16, BF16, I8"),
        ({"norm": ("F16", [2], 4)}, "'norm' has dtype F16; allowed: F32"),
        ({"w": ("F32", [1, 1, 2], 8)}, r"'w' has shape \[1, 1, 2\]"),
        ({"w": ("F32", [], 4)}, r"'w' has shape \[\]"),
        ({"w": ("F32", [0, 4], 0)}, r"'w' has shape \[0, 4\]"),
        ({"w": ("F4", [2], 1)}, "'w' has dtype F4"),
        ({"vocabulary": ("I64", [2], 16)}, r"draft vocabulary is I64 \[2\]"),
        ({"vocabulary": ("I32", [1, 2], 8)}, r"draft vocabulary is I32 \[1, 2\]"),
        ({"vocabulary": ("I32", [2], 8)}, "draft vocabulary has token id 0 more than once"),
        ({"vocabulary": ("I32", [0], 0)}, "draft vocabulary is"),
    ],
)
def test_wrong_tensors_are_named(tmp_path: Path, tensors: dict[str, tuple[str, list[int], int]], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_heads(with_tensors(tmp_path / "x", tensors))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("d2t", "EAGLE-3 heads of another program"),
        ("midlayer.hidden_norm.weight", "EAGLE-3"),
        ("medusa_head.0.0.linear.weight", "Medusa heads of another program"),
        ("0.0.linear.bias", "Medusa"),
        ("mtp.fc.weight", "multi-token prediction modules"),
        ("model.layers.61.eh_proj.weight", "multi-token prediction modules"),
        ("base_model.model.layers.0.q_proj.lora_A.weight", "a LoRA adapter"),
        ("model.layers.0.mlp.up_proj.weight", "a model, or a part of one"),
        ("strange", "its tensors: strange"),
    ],
)
def test_another_programs_safetensors_are_told(tmp_path: Path, name: str, message: str) -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    raw = json.dumps({"__metadata__": {"format": "pt"}, name: entry}).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(4))
    with pytest.raises(CheckpointError, match=f"no heads file of this program.*{message}"):
        open_heads(tmp_path / "x")


@pytest.mark.parametrize(
    ("start", "message"), [(b"GGUF", "a GGUF file"), (b"PK\x03\x04", "pickled PyTorch"), (b"\x80\x02}q", "pickled")]
)
def test_other_formats_are_told(tmp_path: Path, start: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(start + bytes(100))
    with pytest.raises(CheckpointError, match=message):
        open_heads(tmp_path / "x")


def test_a_header_of_any_length_is_read(tmp_path: Path) -> None:
    # its length comes first, and may begin with the byte that a pickle begins with
    for length in range(0, 256, 8):
        recipe = {"padding": "x" * length}
        write_heads(tmp_path / "x", replace(HEADER, recipe=recipe), some_weights(), VOCABULARY)
        assert open_heads(tmp_path / "x").header.recipe == recipe


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_heads(tmp_path / "none")


# ---- damage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def whole_file(folder: Path) -> bytes:
    path = folder / "whole"
    write_heads(path, HEADER, {"w": np.ones((1, 32), np.float32), "n": np.ones(3, np.float32)}, VOCABULARY)
    return path.read_bytes()


@pytest.fixture(scope="module")
def survives(folder: Path) -> Callable[[bytes], bool]:
    """Whether a file is read; any error but the one kind goes through and fails the test."""

    def read(raw: bytes) -> bool:
        path = folder / "damaged"
        path.write_bytes(raw)
        try:
            file = open_heads(path)
        except CheckpointError:
            return False
        for name in file.shapes:
            with np.errstate(all="ignore"):
                file.tensor(name).dequantize()
        return True

    return read


def test_every_truncation_is_refused(whole_file: bytes, survives: Callable[[bytes], bool]) -> None:
    assert survives(whole_file)
    assert not [size for size in range(len(whole_file)) if survives(whole_file[:size])]


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_any_byte_may_be_wrong(whole_file: bytes, survives: Callable[[bytes], bool], flip: int) -> None:
    refused = 0
    for place in range(len(whole_file)):
        raw = whole_file[:place] + bytes([whole_file[place] ^ flip]) + whole_file[place + 1 :]
        refused += not survives(raw)
    assert refused > 100  # what stays readable are names, digits and values


@given(edits=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=12)), min_size=1, max_size=4))
def test_edits_of_a_file(whole_file: bytes, survives: Callable[[bytes], bool], edits: list[tuple[int, bytes]]) -> None:
    raw = bytearray(whole_file)
    for place, patch in edits:
        start = place % len(raw)
        raw[start : start + len(patch)] = patch
    survives(bytes(raw))
