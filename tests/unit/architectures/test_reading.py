"""Settings of model files: what they come to, and what is refused before any weight is read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from headstart.architectures.config import TrunkConfig
from headstart.architectures.huggingface_config import huggingface_config
from headstart.architectures.reading import read_config
from headstart.checkpoint import open_checkpoint
from headstart.errors import CheckpointError, HeadstartError, UnsupportedError
from headstart.testing.tiny_models import write_tiny_gguf

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}


def read_folder(folder: Path, **changes: Any) -> TrunkConfig:
    """The config of a folder without weights to speak of; a change to `None` leaves a key out."""
    settings = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    save_file({"none": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return read_config(open_checkpoint(folder))[1]


def read_gguf(folder: Path, **changes: Any) -> TrunkConfig:
    metadata = {f"llama.{key}": value for key, value in changes.items()}
    return read_config(open_checkpoint(write_tiny_gguf(folder / "tiny.gguf", metadata=metadata)))[1]


def test_what_a_config_leaves_open(tmp_path: Path) -> None:
    config = read_folder(tmp_path)
    assert (config.num_kv_heads, config.head_dim, config.windows, config.tied) == (4, 16, (0,) * 4, True)
    assert (config.rotary.theta, config.rotary.dim, config.rotary.scaling) == (10000.0, 16, "none")
    config = read_folder(tmp_path, num_key_value_heads=2, head_dim=32, rope_theta=5e5, partial_rotary_factor=0.5)
    assert (config.num_kv_heads, config.head_dim) == (2, 32)
    assert (config.rotary.theta, config.rotary.dim) == (5e5, 16)


def test_a_gguf_file_says_the_same(tmp_path: Path) -> None:
    config = read_gguf(tmp_path)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.vocab_size) == (4, 2, 16, 300)
    assert (config.max_context, config.windows, config.tied) == (512, (0, 0), True)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 7}, (7, 7, 7, 7)),
        ({"model_type": "mistral"}, (4096, 4096, 4096, 4096)),  # as transformers takes it
        ({"model_type": "mistral", "sliding_window": 0}, (0, 0, 0, 0)),
        ({"model_type": "qwen2", "sliding_window": 7, "use_sliding_window": False}, (0, 0, 0, 0)),
        (
            {"model_type": "qwen2", "sliding_window": 7, "use_sliding_window": True, "max_window_layers": 3},
            (0, 0, 0, 7),
        ),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3}, (0, 0, 0, 4096)),
        ({"model_type": "qwen2", "use_sliding_window": True}, (0, 0, 0, 0)),  # from layer 28 on
        (
            {
                "model_type": "qwen3", "sliding_window": 7, "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (7, 0, 7, 0),
        ),
    ],
)  # fmt: skip
def test_windows(tmp_path: Path, changes: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert read_folder(tmp_path, **changes).windows == windows


def test_a_window_of_null_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mistral", "sliding_window": None}))
    save_file({"none": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    assert read_config(open_checkpoint(tmp_path))[1].windows == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"type": "linear", "factor": 4}, 2048),
        ({"type": "yarn", "factor": 4}, 2048),
        ({"type": "yarn", "factor": 4, "original_max_position_embeddings": 64}, 512),
        ({"type": "yarn", "factor": 4, "original_max_position_embeddings": 512}, 2048),
    ],
)
def test_a_stretched_model_reaches_as_far_as_it_was_stretched(
    tmp_path: Path, scaling: dict[str, Any], context: int
) -> None:
    config = read_folder(tmp_path, rope_scaling=scaling)
    assert config.max_context == context
    # and so does what is written of it
    (tmp_path / "config.json").write_text(json.dumps(huggingface_config(config)))
    assert read_config(open_checkpoint(tmp_path))[1] == config


@pytest.mark.parametrize(
    ("changes", "scaling", "factor"),
    [
        ({}, "none", 1.0),
        ({"rope.scaling.factor": 1.0}, "none", 1.0),
        ({"rope.scale_linear": 4.0}, "linear", 4.0),  # until November 2023
        ({"rope.scaling.factor": 2.0}, "linear", 2.0),
        ({"rope.scaling.factor": 2.0, "rope.scale_linear": 4.0}, "linear", 2.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 2.0}, "none", 1.0),
    ],
)
def test_how_a_gguf_file_says_that_frequencies_are_stretched(
    tmp_path: Path, changes: dict[str, Any], scaling: str, factor: float
) -> None:
    config = read_gguf(tmp_path, **changes)
    assert (config.rotary.scaling, config.rotary.factor) == (scaling, factor)
    assert config.max_context == 512 * (factor if scaling == "linear" else 1)


def test_what_a_gguf_file_says_of_yarn(tmp_path: Path) -> None:
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}
    plain = read_gguf(tmp_path, **yarn).rotary
    assert (plain.beta_fast, plain.beta_slow, plain.attention_factor) == (32.0, 1.0, 0.1 * math.log(4.0) + 1.0)
    more = {"yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0, "attn_factor": 0.5}
    found = read_gguf(tmp_path, **yarn, **{f"rope.scaling.{key}": value for key, value in more.items()}).rotary
    assert plain.attention_factor is not None
    assert (found.beta_fast, found.beta_slow) == (16.0, 2.0)
    assert found.attention_factor == pytest.approx(0.5 * plain.attention_factor)


def test_rotary_settings_lie_in_one_of_two_places(tmp_path: Path) -> None:
    llama3 = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 128}
    older = read_folder(tmp_path, rope_theta=5e5, rope_scaling={"type": "llama3", **llama3})
    newer = read_folder(tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **llama3})
    assert older.rotary == newer.rotary
    assert (newer.rotary.scaling, newer.rotary.factor, newer.rotary.original_context) == ("llama3", 8.0, 128)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "supported are llama, mistral, qwen2, qwen3"),
        ({"model_type": None}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"hidden_size": 72}, "hidden size is 72"),
        ({"head_dim": 24}, "head dimension is 24"),
        ({"num_key_value_heads": 3}, "equal groups"),
        ({"partial_rotary_factor": 0.01}, "cannot be rotated"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "'dynamic'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "mscale": 1}}, "mscale"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        read_folder(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": None}, "'vocab_size' is missing"),
        ({"vocab_size": 0}, "'vocab_size' is '0'"),
        ({"hidden_size": "64"}, "'hidden_size'"),
        ({"num_attention_heads": True}, "'num_attention_heads' is 'True'"),
        ({"num_hidden_layers": 2**30}, "from 1 to 4096"),
        ({"rms_norm_eps": "small"}, "'rms_norm_eps'"),
        ({"rope_theta": [1]}, "'rope_theta'"),
        ({"rope_scaling": "yarn"}, "must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "'factor' is missing"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "attention_factor": "much"}}, "'attention_factor'"),
        ({"partial_rotary_factor": "half"}, "'partial_rotary_factor'"),
        ({"model_type": "mistral", "sliding_window": "wide"}, "'sliding_window'"),
        (
            {"model_type": "qwen3", "sliding_window": 7, "use_sliding_window": True, "layer_types": ["full_attention"]},
            "'layer_types'",
        ),
        ({"rope_scaling": {"type": "yarn", "factor": 2}, "rope_theta": 1}, "above 1"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": -1}}, "'beta_fast'"),
        ({"rope_theta": 10**400}, "'rope_theta'"),
        ({"rope_theta": 0.0}, "rope_theta"),
        ({"rope_theta": -1e4}, "rope_theta"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
    ],
)
def test_damaged_settings_are_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_folder(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"expert_count": 8}, UnsupportedError, "mixture of experts"),
        ({"expert_count": np.array([8, 8], np.int32)}, CheckpointError, "expert_count"),
        ({"block_count": 2**31}, CheckpointError, "from 1 to 4096"),
        ({"attention.head_count": "four"}, CheckpointError, "attention.head_count"),
        ({"rope.scaling.type": "longrope"}, UnsupportedError, "'longrope'"),
        (
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "rope.scaling.yarn_ext_factor": 0.5},
            UnsupportedError,
            "yarn_ext_factor",
        ),
        ({"rope.dimension_count": 8}, UnsupportedError, "a part of them"),
        ({"rope.scaling.type": "linear"}, CheckpointError, "rope.scaling.factor' is missing"),
    ],
)
def test_gguf_settings_are_checked_too(
    tmp_path: Path, changes: dict[str, Any], kind: type[HeadstartError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        read_gguf(tmp_path, **changes)
