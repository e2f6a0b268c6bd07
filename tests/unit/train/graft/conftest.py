"""A tiny model, and a graft on it that nothing interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headstart.testing.tiny_models import write_tiny_gguf

if TYPE_CHECKING:
    from headstart.train.graft import GraftResult


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf")


@pytest.fixture(scope="module")
def whole(
    model: Path, tmp_path_factory: pytest.TempPathFactory, one_thread_and_no_pictures: None
) -> tuple[Path, GraftResult]:
    # tests that need torch are skipped where it is not, so nothing here may bring it
    from headstart.testing.graft_runs import PROMPTS, SMALL_GRAFT
    from headstart.train.graft import graft

    path = tmp_path_factory.mktemp("runs") / "whole"
    result = graft(model, path, SMALL_GRAFT, PROMPTS)
    assert result is not None
    return path, result
