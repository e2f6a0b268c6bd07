from __future__ import annotations

from pathlib import Path

import pytest

from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf"))


@pytest.fixture(scope="session")
def tiny_heads(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_heads(tmp_path_factory.mktemp("heads") / "tiny.heads.safetensors", tiny_model)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADSTART_CONFIG", "HEADSTART_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
