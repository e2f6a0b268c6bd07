from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.testing.command_line import run_command

CONFIG = {"model_type": "qwen3_5_text", "hidden_size": 16, "num_hidden_layers": 2, "mtp_num_hidden_layers": 1}
MODULE = (
    "mtp.fc.weight", "mtp.norm.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_embedding.weight",
    "mtp.layers.0.self_attn.q_proj.weight", "mtp.layers.0.mlp.down_proj.weight",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    names = dict.fromkeys(("model.embed_tokens.weight", *MODULE), "model-00001-of-00001.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return tmp_path


def test_the_document_has_what_scripts_rely_on(folder: Path) -> None:
    outcome = run_command("inspect", folder, "--json")
    document = outcome.document
    assert (outcome.status, outcome.err, document["family"]) == (0, "", "qwen3_5")
    heads = document["native_heads"]
    assert {name: heads[name] for name in ("promised", "present", "kind", "depths")} == {
        "promised": 1, "present": 1, "kind": "sequential", "depths": 1,
    }  # fmt: skip
    engines = {engine["name"]: engine for engine in document["engines"]}
    assert set(engines) == {"headstart", "vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers", "openvino"}
    assert engines["vllm"]["supported"] is True
    assert engines["vllm"]["flags"][0] == "--speculative-config"
    assert engines["transformers"]["supported"] is False
    assert document["schema_version"] == 1


def test_the_verdict_comes_first_and_commands_can_be_copied(folder: Path) -> None:
    outcome = run_command("inspect", folder)
    lines = outcome.out.splitlines()
    assert lines[0].startswith("It has heads (1 module, sequential), and vLLM")
    assert any(line.split() == ["promised", "1", "(by", "mtp_num_hidden_layers)"] for line in lines)
    assert """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""" in outcome.out
    assert "\x1b" not in outcome.out
    assert max(map(len, lines)) < 140


def test_no_heads_are_no_failure(tiny_model: str) -> None:
    outcome = run_command("inspect", tiny_model)
    assert outcome.status == 0
    assert outcome.out.startswith("It has no heads of its own.")


def test_what_files_hold_is_shown_without_controls(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "\x1b]0;owned\x07"}))
    assert "\x1b" not in run_command("inspect", folder).out


@pytest.mark.parametrize(("name", "status"), [("absent.gguf", 1), ("", 1)])
def test_a_file_that_cannot_be_read_is_one_line(name: str, status: int, tmp_path: Path) -> None:
    outcome = run_command("inspect", tmp_path / name if name else tmp_path)
    assert (outcome.status, outcome.out) == (status, "")
    assert len(outcome.err.splitlines()) == 1
    assert outcome.err.startswith("error: ")


def test_a_revision_of_local_files_is_wrong_usage(folder: Path) -> None:
    outcome = run_command("inspect", folder, "--revision", "main")
    assert outcome.status == 2
    assert "no effect" in outcome.err
