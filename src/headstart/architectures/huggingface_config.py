"""From a `TrunkConfig` to the config.json of the Hugging Face libraries: `reading` the other way."""

from __future__ import annotations

from typing import Any

from headstart.architectures.config import TrunkConfig
from headstart.architectures.rotary import RotaryConfig
from headstart.errors import UnsupportedError

# what the libraries call a rule's numbers
_ROTARY_KEYS = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_context": "original_max_position_embeddings",
    },
    "yarn": {
        "factor": "factor",
        "original_context": "original_max_position_embeddings",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "attention_factor": "attention_factor",
        "truncate": "truncate",
    },
}


def huggingface_config(config: TrunkConfig) -> dict[str, Any]:
    """The contents of config.json.

    Not every trunk has a form there: a family's biases and windows are fixed or bound to each other. Read what was
    written and compare, as `headstart.train.joint_model` does.

    Raises:
        UnsupportedError: its rotary frequencies have no form there.
    """
    settings: dict[str, Any] = {
        "architectures": [f"{config.family.capitalize()}ForCausalLM"],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": _unscaled_context(config),
        "rope_theta": config.rotary.theta,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tied,
    }
    if window := max(config.windows):
        settings |= {"sliding_window": window, "use_sliding_window": True, "max_window_layers": 0}
    elif config.family == "mistral":  # to readers, one that is not mentioned is the usual one
        settings["sliding_window"] = None
    if config.rotary.dim != config.head_dim:
        settings["partial_rotary_factor"] = config.rotary.dim / config.head_dim
    if config.rotary.scaling != "none":
        settings["rope_scaling"] = _scaling(config.rotary)
    return settings


def _unscaled_context(config: TrunkConfig) -> int:
    """What a linear factor is to be multiplied with on reading."""
    return round(config.max_context / config.rotary.factor) if config.rotary.scaling == "linear" else config.max_context


def _scaling(rotary: RotaryConfig) -> dict[str, Any]:
    keys = _ROTARY_KEYS.get(rotary.scaling)
    if keys is None:
        raise UnsupportedError(
            "The GGUF file holds its rotary frequencies as a table, which config.json has no form for. Start from the "
            "model's original folder of safetensors instead."
        )
    values = {stored: getattr(rotary, name) for name, stored in keys.items()}
    return {"rope_type": rotary.scaling} | {name: value for name, value in values.items() if value is not None}
