"""GGUF files with and without the blocks of their heads, by llama.cpp's names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.measure.inspect import inspect_checkpoint
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor

Shapes = dict[str, tuple[int, ...]]

NEXTN = {
    "nextn.eh_proj.weight": (32, 64), "nextn.enorm.weight": (32,), "nextn.hnorm.weight": (32,),
    "nextn.shared_head_norm.weight": (32,), "attn_q.weight": (64, 32), "attn_k.weight": (16, 32),
    "attn_v.weight": (16, 32), "attn_output.weight": (32, 64), "ffn_gate_exps.weight": (2, 8, 32),
    "ffn_up_exps.weight": (2, 8, 32), "ffn_down_exps.weight": (2, 32, 32),
}  # fmt: skip


def write_qwen35_gguf(path: Path, *, nextn: int, modules: int) -> Path:
    shapes = {"token_embd.weight": (64, 32), "blk.39.attn_norm.weight": (32,), "output.weight": (64, 32)}
    for number in range(modules):
        shapes |= {f"blk.{40 + number}.{name}": shape for name, shape in NEXTN.items()}
    keys: dict[str, object] = {"general.architecture": "qwen35moe", "qwen35moe.block_count": 40 + nextn}
    if nextn:
        keys["qwen35moe.nextn_predict_layers"] = nextn
    write_gguf(path, keys, [make_tensor(name, np.ones(shape, np.float32)) for name, shape in shapes.items()])
    return path


def test_a_gguf_with_its_heads(tmp_path: Path) -> None:
    report = inspect_checkpoint(write_qwen35_gguf(tmp_path / "q.gguf", nextn=1, modules=1))
    heads = report.native_heads
    assert (report.family, heads.promised, heads.present, heads.layout) == ("qwen3_5", 1, 1, "nextn")
    assert heads.promised_by == "qwen35moe.nextn_predict_layers"
    engines = {engine.name: engine for engine in report.engines}
    assert engines["llama.cpp"].supported
    assert engines["llama.cpp"].flags == ("--spec-type", "draft-mtp", "--spec-draft-n-max", "1")
    assert engines["llama.cpp"].since == "pull request 22673"
    assert not engines["vllm"].supported
    assert "gguf" in engines["vllm"].why
    assert report.sizes.cache_bytes_per_token == (16 + 16) * 2


def test_a_gguf_whose_conversion_left_them_out(tmp_path: Path) -> None:
    report = inspect_checkpoint(write_qwen35_gguf(tmp_path / "q.gguf", nextn=0, modules=0))
    assert (report.native_heads.promised, report.native_heads.present) == (0, 0)
    assert not any(engine.supported or engine.after_conversion for engine in report.engines)


def test_a_gguf_that_promises_what_a_quantiser_dropped(tmp_path: Path) -> None:
    report = inspect_checkpoint(write_qwen35_gguf(tmp_path / "q.gguf", nextn=1, modules=0))
    assert report.native_heads.agrees is False
    assert report.findings[0].level == "problem"


def test_a_block_beyond_the_trunk_without_the_parts_of_heads(tmp_path: Path) -> None:
    names = ("token_embd.weight", "blk.39.attn_norm.weight", "blk.40.attn_q.weight")
    keys = {"general.architecture": "qwen35moe", "qwen35moe.block_count": 41, "qwen35moe.nextn_predict_layers": 1}
    write_gguf(tmp_path / "q.gguf", keys, [make_tensor(name, np.ones((4, 32), np.float32)) for name in names])
    report = inspect_checkpoint(tmp_path / "q.gguf")
    assert report.native_heads.present == 0
    (stray,) = (finding.text for finding in report.findings if "look like heads" in finding.text)
    assert "blk.40.attn_q" in stray
    assert "blk.39" not in stray


def test_a_drafter_with_the_whole_vocabulary_needs_no_map(tmp_path: Path) -> None:
    shapes: Shapes = {
        "fc.weight": (32, 96), "output_norm.weight": (32,), "output.weight": (64, 32), "blk.0.attn_norm.weight": (32,),
        "blk.0.attn_norm_2.weight": (32,), "blk.0.attn_q.weight": (64, 64), "blk.0.attn_k.weight": (16, 64),
        "blk.0.attn_v.weight": (16, 64), "blk.0.attn_output.weight": (32, 64), "blk.0.ffn_norm.weight": (32,),
        "blk.0.ffn_gate.weight": (64, 32), "blk.0.ffn_up.weight": (64, 32), "blk.0.ffn_down.weight": (32, 64),
    }  # fmt: skip
    tensors = [make_tensor(name, np.ones(shape, np.float32)) for name, shape in shapes.items()]
    write_gguf(tmp_path / "e.gguf", {"general.architecture": "eagle3", "eagle3.block_count": 1}, tensors)
    report = inspect_checkpoint(tmp_path / "e.gguf")
    assert (report.family, report.native_heads.kind, report.native_heads.present) == ("eagle3", "eagle3", 1)
    assert not any(finding.level == "problem" for finding in report.findings)
    assert {engine.name for engine in report.engines if engine.supported} == {"llama.cpp"}


@pytest.mark.parametrize(("splits", "family"), [("glm4", "glm4_moe_lite"), ("deepseek-v3", "deepseek_v3")])
def test_two_families_are_written_under_one_architecture(tmp_path: Path, splits: str, family: str) -> None:
    shapes = {"token_embd.weight": (64, 32), "blk.3.attn_norm.weight": (32,), "output.weight": (64, 32)}
    shapes |= {f"blk.4.{name}": shape for name, shape in NEXTN.items()}
    keys = {
        "general.architecture": "deepseek2", "deepseek2.block_count": 5, "deepseek2.nextn_predict_layers": 1,
        "tokenizer.ggml.pre": splits,
    }  # fmt: skip
    tensors = [make_tensor(name, np.ones(shape, np.float32)) for name, shape in shapes.items()]
    write_gguf(tmp_path / "g.gguf", keys, tensors)
    report = inspect_checkpoint(tmp_path / "g.gguf")
    assert (report.family, report.native_heads.promised, report.native_heads.present) == (family, 1, 1)
    assert {engine.name for engine in report.engines if engine.supported} == {"llama.cpp"}
