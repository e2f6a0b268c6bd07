"""Heads of every kind with random weights, for the models of `headstart.testing.tiny_models`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.reading import read_config
from headstart.architectures.weights import wanted_shapes
from headstart.checkpoint import open_checkpoint
from headstart.checkpoint.heads_file import HeadsHeader, write_heads
from headstart.runtime.open_heads import identify_trunk

_SIZES: dict[str, Any] = {"depth": 3, "taps": (2,), "hidden_stage": "pre_norm", "intermediate_size": 96}

TINY_HEADS: dict[str, dict[str, Any]] = {
    "parallel": {"kind": "parallel", "num_modules": 3},
    "parallel, two layers": {"kind": "parallel", "num_modules": 3, "num_layers": 2, "own_unembedding": True},
    "parallel, linear": {"kind": "parallel", "num_modules": 3, "form": "linear", "hidden_stage": "post_norm"},
    "medusa": {"kind": "medusa", "num_modules": 3, "num_layers": 2, "hidden_stage": "post_norm"},
    "medusa, own": {"kind": "medusa", "num_modules": 3, "own_unembedding": True},
    "sequential": {"kind": "sequential", "num_modules": 3},
    "sequential, one module": {"kind": "sequential", "depth": 1, "hidden_stage": "post_norm"},
    "sequential, unrolled": {"kind": "sequential", "recycled_stage": "post_norm", "order": "hidden_embedding"},
    "sequential, several taps": {"kind": "sequential", "taps": (0, 1, 2), "hidden_stage": "post_norm"},
    "eagle": {"kind": "eagle", "hidden_stage": "post_norm"},
    "eagle3": {"kind": "eagle3", "taps": (0, 1, 2)},
    "eagle3, own": {"kind": "eagle3", "taps": (1, 2), "hidden_stage": "post_norm", "own_unembedding": True},
}
"""Settings of `tiny_heads_config`, by what is to be seen."""


def tiny_heads_config(name: str, *, draft_vocab_size: int = 0) -> HeadsConfig:
    """One of `TINY_HEADS`, for a tiny model of two layers."""
    return HeadsConfig(**{**_SIZES, **TINY_HEADS[name], "draft_vocab_size": draft_vocab_size})


def random_heads(config: HeadsConfig, trunk: TrunkConfig, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Weights of heads, by name, large enough that every part shows in the logits."""
    random = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.float32]] = {}
    for stage in heads_program(config, trunk).stages:
        for name, shape in wanted_shapes(stage.program).items():
            if name.startswith("trunk.") or name in weights:
                continue
            if len(shape) == 1:
                around = 0.0 if name.endswith("bias") else 1.0
                values = around + random.normal(0.0, 0.3, shape)
            else:
                values = random.normal(0.0, 0.9 / np.sqrt(shape[1]), shape)
            weights[name] = values.astype(np.float32)
    return weights


def write_tiny_heads(path: Path, model: Path | str, name: str = "eagle3", *, num_guessed: int = 0) -> Path:
    """A file of random heads for a tiny model.

    Args:
        path: where to.
        model: the file of the model.
        name: one of `TINY_HEADS`.
        num_guessed: tokens that can be guessed, every second one of the vocabulary; 0 for all.
    """
    checkpoint = open_checkpoint(model)
    config = tiny_heads_config(name, draft_vocab_size=num_guessed)
    header = HeadsHeader(heads=config.to_json(), trunk=identify_trunk(checkpoint))
    vocabulary = np.arange(0, 2 * num_guessed, 2, dtype=np.int32) if num_guessed else None
    write_heads(path, header, random_heads(config, read_config(checkpoint)[1]), vocabulary)
    return path
