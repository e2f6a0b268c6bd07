"""Tiny models in the native core, loaded once for each way to load them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.testing.tiny_models import write_tiny_gguf

POISON = 299
"""A token of `poisoned` models whose embedding is NaN, so that all it writes to the cache is NaN."""


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checkpoint]:
    """`tiny_checkpoint(poisoned=False, **options of write_tiny_gguf)`."""

    @functools.cache
    def get(poisoned: bool = False, **options: Any) -> Checkpoint:
        path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", **options)
        checkpoint = open_checkpoint(path)
        if poisoned:
            embedding = checkpoint.tensors["token_embd.weight"]
            last_row = embedding.data.reshape(embedding.shape[0], -1)[POISON].tobytes()
            content = path.read_bytes()
            assert content.count(last_row) == 1
            nan = np.full(embedding.shape[1], np.nan, {"F32": np.float32, "F16": np.float16}[embedding.kind])
            path.write_bytes(content.replace(last_row, nan.tobytes()))
            checkpoint = open_checkpoint(path)
        return checkpoint

    return get


@pytest.fixture(scope="session")
def tiny_trunk(tiny_checkpoint: Callable[..., Checkpoint]) -> Callable[..., NativeTrunk]:
    """`tiny_trunk(threads=1, instruction_set=None, cache="auto", weights="stored", **options of tiny_checkpoint)`.

    A trunk may be handed out again, so a test makes the cache it needs.
    """

    @functools.cache
    def get(
        threads: int = 1,
        instruction_set: str | None = None,
        cache: Any = "auto",
        weights: Any = "stored",
        **options: Any,
    ) -> NativeTrunk:
        return load_trunk(
            tiny_checkpoint(**options), threads=threads, instruction_set=instruction_set, cache=cache, weights=weights
        )

    return get
