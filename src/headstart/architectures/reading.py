"""From a file's own settings to a `TrunkConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headstart.architectures.config import TrunkConfig
from headstart.architectures.family import Family, Settings
from headstart.architectures.llama import LLAMA
from headstart.architectures.mistral import MISTRAL
from headstart.architectures.qwen2 import QWEN2
from headstart.architectures.qwen3 import QWEN3
from headstart.architectures.rotary import RotaryConfig
from headstart.checkpoint import Checkpoint
from headstart.errors import CheckpointError, UnsupportedError

FAMILIES = (LLAMA, QWEN2, QWEN3, MISTRAL)

# GGUF's name for the divisors of rotary frequencies that llama3 scaling comes down to
GGUF_ROTARY_FACTORS = "rope_freqs.weight"

_T = TypeVar("_T")


def read_config(checkpoint: Checkpoint) -> tuple[Family, TrunkConfig]:
    """The family of a checkpoint and its sizes.

    Raises:
        UnsupportedError: a family or feature that is not supported.
        CheckpointError: a setting is missing or of the wrong type.
    """
    if checkpoint.format == "gguf":
        return _read_gguf(checkpoint)
    return _read_huggingface(checkpoint)


def _find_family(key: str, value: object, names: Mapping[str, Family]) -> Family:
    if family := names.get(str(value)):
        return family
    raise UnsupportedError(f"{key} is {value!r}; supported are {', '.join(sorted(names))}.")


def _get(settings: Settings, key: str, kind: type[_T]) -> _T:
    value = settings.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, kind) if kind is float else kind):
        found = "is missing" if value is None else f"is {value!r}"
        raise CheckpointError(f"The model's setting {key!r} {found}; it must be a number of type {kind.__name__}.")
    return kind(value)  # type: ignore[call-arg]


def _positive(settings: Settings, key: str) -> int:
    value = _get(settings, key, int)
    if not 0 < value < 1 << 31:
        raise CheckpointError(f"The model's setting {key!r} is {value}; it must be a positive 32-bit number.")
    return value


# ---- config.json ------------------------------------------------------------------------------


def _read_huggingface(checkpoint: Checkpoint) -> tuple[Family, TrunkConfig]:
    settings = checkpoint.metadata
    family = _find_family("model_type in config.json", settings.get("model_type"), {f.name: f for f in FAMILIES})
    if (activation := settings.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise UnsupportedError(f"hidden_act is {activation!r}; only 'silu' is supported.")
    num_layers, num_heads = _positive(settings, "num_hidden_layers"), _positive(settings, "num_attention_heads")
    hidden_size = _positive(settings, "hidden_size")
    has_head_dim = settings.get("head_dim") is not None
    head_dim = _positive(settings, "head_dim") if has_head_dim else hidden_size // num_heads
    has_kv_heads = settings.get("num_key_value_heads") is not None
    fields: dict[str, Any] = {
        "windows": (0,) * num_layers,
        **family.huggingface_features(settings),
    }
    config = TrunkConfig(
        family=family.name,
        vocab_size=_positive(settings, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_positive(settings, "num_key_value_heads") if has_kv_heads else num_heads,
        head_dim=head_dim,
        intermediate_size=_positive(settings, "intermediate_size"),
        norm_eps=_get(settings, "rms_norm_eps", float),
        max_context=_positive(settings, "max_position_embeddings"),
        rotary=_huggingface_rotary(settings, head_dim),
        tied=bool(settings.get("tie_word_embeddings", False)) or "lm_head.weight" not in checkpoint.tensors,
        **fields,
    )
    return family, config


def _huggingface_rotary(settings: Settings, head_dim: int) -> RotaryConfig:
    # older files: rope_theta beside rope_scaling; newer: all in rope_parameters
    rules = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if not isinstance(rules, Mapping):
        raise CheckpointError(f"The model's rope settings are {rules!r}; they must be an object.")
    theta = rules.get("rope_theta", settings.get("rope_theta", 10000.0))
    partial = rules.get("partial_rotary_factor", settings.get("partial_rotary_factor", 1.0))
    base: dict[str, Any] = {"theta": float(theta), "dim": int(head_dim * partial)}
    match rules.get("rope_type", rules.get("type", "default")):
        case "default" | None:
            return RotaryConfig(**base)
        case "linear":
            return RotaryConfig(**base, scaling="linear", factor=_get(rules, "factor", float))
        case "llama3":
            return RotaryConfig(
                **base,
                scaling="llama3",
                factor=_get(rules, "factor", float),
                low_freq_factor=_get(rules, "low_freq_factor", float),
                high_freq_factor=_get(rules, "high_freq_factor", float),
                original_context=_positive(rules, "original_max_position_embeddings"),
            )
        case "yarn":
            stated = rules.get("original_max_position_embeddings") is not None
            place = (rules, "original_max_position_embeddings") if stated else (settings, "max_position_embeddings")
            if rules.get("mscale") is not None or rules.get("mscale_all_dim") is not None:
                raise UnsupportedError("yarn scaling with mscale is not supported.")
            return RotaryConfig(
                **base,
                scaling="yarn",
                factor=_get(rules, "factor", float),
                original_context=_positive(*place),
                beta_fast=float(rules.get("beta_fast") or 32.0),
                beta_slow=float(rules.get("beta_slow") or 1.0),
                attention_factor=rules.get("attention_factor"),
                truncate=bool(rules.get("truncate", True)),
            )
        case other:
            raise UnsupportedError(f"rope type {other!r} is not supported; linear, llama3 and yarn are.")


# ---- GGUF -------------------------------------------------------------------------------------


def _read_gguf(checkpoint: Checkpoint) -> tuple[Family, TrunkConfig]:
    settings = checkpoint.metadata
    architecture = settings.get("general.architecture")
    family = _find_family("general.architecture", architecture, {f.gguf_architecture: f for f in FAMILIES})
    if int(settings.get(f"{architecture}.expert_count", 0) or 0) > 0:  # type: ignore[call-overload]
        raise UnsupportedError("The file holds a mixture of experts, which is not supported.")

    def key(name: str) -> str:
        return f"{architecture}.{name}"

    num_layers, num_heads = _positive(settings, key("block_count")), _positive(settings, key("attention.head_count"))
    hidden_size = _positive(settings, key("embedding_length"))
    has_head_dim = key("attention.key_length") in settings
    head_dim = _positive(settings, key("attention.key_length")) if has_head_dim else hidden_size // num_heads
    has_kv_heads = key("attention.head_count_kv") in settings
    embedding = checkpoint.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError("The tensor 'token_embd.weight' is missing from the file.")
    window = _positive(settings, key("attention.sliding_window")) if key("attention.sliding_window") in settings else 0
    config = TrunkConfig(
        family=family.name,
        vocab_size=embedding.shape[0],
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_positive(settings, key("attention.head_count_kv")) if has_kv_heads else num_heads,
        head_dim=head_dim,
        intermediate_size=_positive(settings, key("feed_forward_length")),
        norm_eps=_get(settings, key("attention.layer_norm_rms_epsilon"), float),
        max_context=_positive(settings, key("context_length")),
        rotary=_gguf_rotary(checkpoint, key, head_dim),
        windows=(window,) * num_layers,
        tied="output.weight" not in checkpoint.tensors,
        **_gguf_biases(checkpoint, family),
    )
    return family, config


def _gguf_biases(checkpoint: Checkpoint, family: Family) -> dict[str, bool]:
    # llama files say by their tensors alone whether there are biases
    found = {
        "qkv_bias": "blk.0.attn_q.bias" in checkpoint.tensors,
        "output_bias": "blk.0.attn_output.bias" in checkpoint.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in checkpoint.tensors,
    }
    return {**found, **family.gguf_features}


def _gguf_rotary(checkpoint: Checkpoint, key: Any, head_dim: int) -> RotaryConfig:
    settings = checkpoint.metadata
    has_dim, has_theta = key("rope.dimension_count") in settings, key("rope.freq_base") in settings
    base: dict[str, Any] = {
        "theta": _get(settings, key("rope.freq_base"), float) if has_theta else 10000.0,
        "dim": _positive(settings, key("rope.dimension_count")) if has_dim else head_dim,
    }
    if factors := checkpoint.tensors.get(GGUF_ROTARY_FACTORS):
        return RotaryConfig(**base, scaling="factors", factors=tuple(factors.dequantize().ravel().tolist()))
    match settings.get(key("rope.scaling.type"), "none"):
        case "none":
            return RotaryConfig(**base)
        case "linear":
            return RotaryConfig(**base, scaling="linear", factor=_get(settings, key("rope.scaling.factor"), float))
        case "yarn":
            return RotaryConfig(
                **base,
                scaling="yarn",
                factor=_get(settings, key("rope.scaling.factor"), float),
                original_context=_positive(settings, key("rope.scaling.original_context_length")),
            )
        case other:
            raise UnsupportedError(f"rope scaling {other!r} is not supported; linear and yarn are.")
