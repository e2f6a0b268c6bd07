"""Where settings and headers come from: folders, files, parts of files, the hub; and what goes wrong."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest

from headstart.checkpoint.declared import DeclaredTensor
from headstart.checkpoint.safetensors import INDEX_NAME
from headstart.errors import CheckpointError, ConfigError, UnsupportedError
from headstart.measure.inspect import describe, inspect_checkpoint
from headstart.measure.inspect.hub import describe_hub
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor
from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf

Declared = Callable[..., Mapping[str, DeclaredTensor]]


def write_tensors(path: Path, *names: str) -> Path:
    """A whole safetensors file of one value a tensor."""
    header = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * at, 4 * at + 4]} for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4 * len(names)))
    return path


def write_index(folder: Path, files: Mapping[str, str]) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": files}))


def test_one_file_takes_the_settings_beside_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    description = describe(write_tensors(tmp_path / "some.safetensors", "a", "b"))
    assert description.settings == {"model_type": "llama"}
    assert list(description.tensors or ()) == ["a", "b"]


def test_shards_are_joined(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one.safetensors", "a")
    write_tensors(tmp_path / "two.safetensors", "b")
    write_index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    description = describe(tmp_path)
    assert set(description.tensors or ()) == {"a", "b"}
    assert description.has_shapes


def test_absent_shards_leave_the_names(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one.safetensors", "a")
    write_index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    description = describe(tmp_path)
    assert set(description.tensors or ()) == {"a", "b"}
    assert (description.has_shapes, description.absent_files) == (False, ("two.safetensors",))


def test_weights_that_the_index_does_not_name_are_told(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one.safetensors", "a")
    write_tensors(tmp_path / "mtp.safetensors", "mtp.fc.weight")
    write_index(tmp_path, {"a": "one.safetensors"})
    report = inspect_checkpoint(tmp_path)
    assert report.native_heads.present == 0
    assert any("does not name mtp.safetensors" in finding.text for finding in report.findings)


def test_an_index_that_lies_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one.safetensors", "a")
    write_index(tmp_path, {"a": "one.safetensors", "mtp.fc.weight": "one.safetensors"})
    with pytest.raises(CheckpointError, match=r"not in the shards.*'mtp\.fc\.weight'"):
        describe(tmp_path)


def test_an_index_cannot_lead_elsewhere(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": "../one.safetensors"})
    with pytest.raises(CheckpointError, match="plain file names"):
        describe(tmp_path)


def test_a_folder_of_settings_and_pickles(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    report = inspect_checkpoint(tmp_path)
    assert (report.format, report.native_heads.promised, report.native_heads.present) == ("pickled", 1, None)
    assert "cannot be seen" in report.verdict
    assert not any(engine.supported for engine in report.engines)


def test_the_beginning_of_a_gguf_is_enough(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "whole.gguf")
    start = tmp_path / "start.gguf"
    start.write_bytes(whole.read_bytes()[:40_000])
    assert start.stat().st_size < whole.stat().st_size
    assert describe(start).tensors == describe(whole).tensors


def test_a_gguf_of_kinds_that_this_build_cannot_run(tmp_path: Path) -> None:
    path = tmp_path / "iq.gguf"
    values = np.ones((2, 256), np.float32)
    write_gguf(path, {"general.architecture": "llama"}, [make_tensor("a.weight", values), make_tensor("b", values)])
    data = bytearray(path.read_bytes())
    at = data.index(b"a.weight") + len("a.weight") + 4 + 16
    data[at : at + 4] = (23).to_bytes(4, "little")  # IQ4_XS
    path.write_bytes(data)
    first, second = (describe(path).tensors or {}).values()
    assert (first.kind, first.num_bytes) == ("IQ4_XS", second.num_bytes)


def test_parts_of_a_gguf_are_joined_and_missing_ones_named(tmp_path: Path) -> None:
    for number in (1, 2):
        keys = {"general.architecture": "llama", "split.count": 2, "split.no": number - 1}
        write_gguf(tmp_path / f"m-0000{number}-of-00002.gguf", keys, [make_tensor(f"t{number}", np.ones(4))])
    assert set(describe(tmp_path).tensors or ()) == {"t1", "t2"}
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    description = describe(tmp_path / "m-00001-of-00002.gguf")
    assert (description.tensors, description.absent_files) == (None, ("m-00002-of-00002.gguf",))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"\x05", "1 bytes"),
        ("model.safetensors", b"\x08" + bytes(7) + b"not json", "not valid JSON"),
        ("model.safetensors", b"\x00" * 8, "not valid JSON"),
        ("model.gguf", b"GGUF", "ends within"),
        ("config.json", b"[]", "not a JSON object"),
    ],
)
def test_a_damaged_file_is_one_error(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        inspect_checkpoint(tmp_path)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        describe(tmp_path)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        describe(tmp_path / "absent.gguf")
    with pytest.raises(CheckpointError, match="no such file or folder"):
        describe("")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="JSON file alone"):
        describe(tmp_path / "config.json")
    with pytest.raises(ConfigError, match="revision"):
        describe(tmp_path, revision="main")


def test_several_models_in_a_folder(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_tiny_gguf(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"a\.gguf, b\.gguf"):
        describe(tmp_path)


# ---- this program's own heads --------------------------------------------------------------------


def test_heads_beside_a_model_are_found(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "m.gguf")
    heads = write_tiny_heads(tmp_path / "m.heads.safetensors", model, "eagle3")
    report = inspect_checkpoint(model)
    ours = report.engines[0]
    assert (ours.name, ours.supported, ours.flags) == ("headstart", True, ("--draft", f"heads:{heads}"))
    assert report.own_heads is not None
    assert (report.own_heads.kind, report.own_heads.depths) == ("eagle3", 3)
    assert report.own_heads.cache_bytes_per_token == 2 * (2 * 16 + 2 * 16)
    assert "eagle3 heads for it" in report.verdict


def test_heads_beside_a_model_that_do_not_fit_are_told(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "m.gguf")
    write_tiny_heads(tmp_path / "m.heads.safetensors", write_tiny_gguf(tmp_path / "other.gguf", seed=1))
    ours = inspect_checkpoint(model).engines[0]
    assert not ours.supported
    assert "do not fit" in ours.why


def test_a_heads_file_speaks_for_itself(tmp_path: Path) -> None:
    heads = write_tiny_heads(tmp_path / "x.heads.safetensors", write_tiny_gguf(tmp_path / "m.gguf"), "medusa")
    (tmp_path / "config.json").write_text('{"model_type": "llama", "quantization_config": {"quant_method": "awq"}}')
    report = inspect_checkpoint(heads)
    assert (report.role, report.family, report.native_heads.kind) == ("heads file", "headstart", "medusa")
    assert report.quantisation is None  # the settings beside it are its trunk's
    assert report.sizes.trunk_parameters == 0
    assert (report.sizes.heads_parameters or 0) > 0
    assert [engine.name for engine in report.engines] == ["headstart"]


# ---- the hub -------------------------------------------------------------------------------------


@dataclass
class FakeHub:
    """Files of a folder as the hub would give them; remembers what was asked for."""

    folder: Path
    headers: Mapping[str, Mapping[str, DeclaredTensor]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def list_repo_files(self, repo_id: str, *, revision: str | None) -> Sequence[str]:
        return [*(path.name for path in self.folder.iterdir()), *self.headers, "original/consolidated.safetensors"]

    def hf_hub_download(self, repo_id: str, filename: str, *, revision: str | None) -> str:
        self.asked.append(filename)
        return str(self.folder / filename)

    def parse_safetensors_file_metadata(self, repo_id: str, filename: str, *, revision: str | None) -> Any:
        self.asked.append(f"{filename}, its header")
        entries = {
            name: SimpleNamespace(dtype=tensor.kind, shape=list(tensor.shape), data_offsets=(0, tensor.num_bytes))
            for name, tensor in self.headers[filename].items()
        }
        return SimpleNamespace(tensors=entries)

    def read_start(self, repo_id: str, filename: str, num_bytes: int, *, revision: str | None) -> bytes:
        self.asked.append(f"{filename}, its start")
        return (self.folder / filename).read_bytes()[:num_bytes]


def test_the_hub_is_asked_for_settings_index_and_headers_alone(tmp_path: Path, declared: Declared) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mimo"}')
    write_index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    tensors = {"one.safetensors": declared({"a": (2, 3)}), "two.safetensors": declared({"b": (4,)})}
    hub = FakeHub(tmp_path, tensors)
    description = describe_hub("xiaomi/mimo", None, hub)
    assert description.tensors == {**tensors["one.safetensors"], **tensors["two.safetensors"]}
    assert sorted(hub.asked) == [
        "config.json",
        INDEX_NAME,
        "one.safetensors, its header",
        "two.safetensors, its header",
    ]


def test_a_gguf_on_the_hub_is_read_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    hub = FakeHub(tmp_path)
    assert describe_hub("a/b", None, hub).tensors == describe(tmp_path / "m.gguf").tensors
    assert hub.asked == ["m.gguf, its start"]
    monkeypatch.setattr("headstart.measure.inspect.hub._FIRST_READ_BYTES", 4000)
    assert describe_hub("a/b", None, hub).settings.keys() == describe(tmp_path / "m.gguf").settings.keys()
    assert len(hub.asked) > 2
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match="ends within"):
        describe_hub("a/b", None, hub)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("list_repo_files", ("a/b",)),
        ("hf_hub_download", ("a/b", "config.json")),
        ("parse_safetensors_file_metadata", ("a/b", "model.safetensors")),
    ],
)
def test_the_real_hub_takes_what_it_is_asked(method: str, arguments: tuple[str, ...]) -> None:
    function = getattr(huggingface_hub.HfApi, method)
    inspect.signature(function).bind(None, *arguments, revision=None)


def test_the_hubs_refusals_are_one_error(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_tiny_gguf(tmp_path / name)
    with pytest.raises(UnsupportedError, match=r"a\.gguf"):
        describe_hub("a/b", None, FakeHub(tmp_path))
    with pytest.raises(CheckpointError, match="the hub does not give it"):
        describe_hub("a/b", None, FakeHub(tmp_path / "absent"))
