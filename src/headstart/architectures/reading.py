"""From a file's own settings to a `TrunkConfig`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from headstart.architectures.config import TrunkConfig
from headstart.architectures.family import Family, sliding_window
from headstart.architectures.llama import LLAMA
from headstart.architectures.mistral import MISTRAL
from headstart.architectures.qwen2 import QWEN2
from headstart.architectures.qwen3 import QWEN3
from headstart.architectures.rotary import RotaryConfig
from headstart.architectures.settings import Settings, count, positive, real
from headstart.checkpoint import Checkpoint, Tensor
from headstart.errors import CheckpointError, UnsupportedError

FAMILIES = (LLAMA, QWEN2, QWEN3, MISTRAL)

# GGUF's name for the divisors of rotary frequencies that llama3 scaling comes down to
GGUF_ROTARY_FACTORS = "rope_freqs.weight"

# no model comes near; a damaged number must not become a program of billions of operations
MAX_LAYERS = 4096


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
    raise UnsupportedError(f"{key} is {value!r}; supported are {', '.join(sorted(names))}. Choose a model of these.")


# ---- config.json ------------------------------------------------------------------------------


def _read_huggingface(checkpoint: Checkpoint) -> tuple[Family, TrunkConfig]:
    settings = checkpoint.metadata
    family = _find_family("model_type in config.json", settings.get("model_type"), {f.name: f for f in FAMILIES})
    if (activation := settings.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise UnsupportedError(f"hidden_act is {activation!r}; only 'silu' is supported.")
    num_layers = count(settings, "num_hidden_layers", most=MAX_LAYERS)
    num_heads = count(settings, "num_attention_heads")
    hidden_size = count(settings, "hidden_size")
    head_dim = count(settings, "head_dim", hidden_size // num_heads)
    fields: dict[str, Any] = {"windows": (0,) * num_layers, **family.huggingface_features(settings)}
    rotary = _huggingface_rotary(settings, head_dim)
    config = TrunkConfig(
        family=family.name,
        vocab_size=count(settings, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=count(settings, "num_key_value_heads", num_heads),
        head_dim=head_dim,
        intermediate_size=count(settings, "intermediate_size"),
        norm_eps=positive(settings, "rms_norm_eps"),
        max_context=_scaled_context(count(settings, "max_position_embeddings"), rotary),
        rotary=rotary,
        tied=bool(settings.get("tie_word_embeddings", False)) or "lm_head.weight" not in checkpoint.tensors,
        **fields,
    )
    return family, config


def _huggingface_rotary(settings: Settings, head_dim: int) -> RotaryConfig:
    # older files: rope_theta beside rope_scaling; newer: all in rope_parameters
    rules = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if not isinstance(rules, Mapping):
        raise CheckpointError(f"The model's rope settings are {rules!r}; they must be an object.")
    theta = positive(rules, "rope_theta", positive(settings, "rope_theta", 10000.0))
    partial = positive(rules, "partial_rotary_factor", positive(settings, "partial_rotary_factor", 1.0))
    base: dict[str, Any] = {"theta": theta, "dim": int(head_dim * partial)}
    match rules.get("rope_type", rules.get("type", "default")):
        case "default" | None:
            return RotaryConfig(**base)
        case "linear":
            return RotaryConfig(**base, scaling="linear", factor=positive(rules, "factor"))
        case "llama3":
            return RotaryConfig(
                **base,
                scaling="llama3",
                factor=positive(rules, "factor"),
                low_freq_factor=positive(rules, "low_freq_factor"),
                high_freq_factor=positive(rules, "high_freq_factor"),
                original_context=count(rules, "original_max_position_embeddings"),
            )
        case "yarn":
            has_attention_factor = rules.get("attention_factor") is not None
            stated = rules.get("original_max_position_embeddings") is not None
            place = (rules, "original_max_position_embeddings") if stated else (settings, "max_position_embeddings")
            if rules.get("mscale") is not None or rules.get("mscale_all_dim") is not None:
                raise UnsupportedError("yarn scaling with mscale is not supported.")
            return _yarn(
                **base,
                factor=positive(rules, "factor"),
                original_context=count(*place),
                beta_fast=positive(rules, "beta_fast", 32.0),
                beta_slow=positive(rules, "beta_slow", 1.0),
                attention_factor=positive(rules, "attention_factor") if has_attention_factor else None,
                truncate=bool(rules.get("truncate", True)),
            )
        case other:
            raise UnsupportedError(f"rope type {other!r} is not supported; linear, llama3 and yarn are.")


def _yarn(theta: float, **fields: Any) -> RotaryConfig:
    if theta <= 1.0:
        raise CheckpointError(f"The model's rotary base is {theta}; with yarn scaling it must be above 1.")
    return RotaryConfig(theta=theta, scaling="yarn", **fields)


def _scaled_context(stated: int, rotary: RotaryConfig) -> int:
    """How far a model reaches; its files may state how far it did before its frequencies were stretched."""
    match rotary.scaling:
        case "linear":
            return max(stated, round(stated * rotary.factor))
        case "yarn":
            return max(stated, round(rotary.original_context * rotary.factor))
        case _:
            return stated


# ---- GGUF -------------------------------------------------------------------------------------


def _read_gguf(checkpoint: Checkpoint) -> tuple[Family, TrunkConfig]:
    settings = checkpoint.metadata
    architecture = settings.get("general.architecture")
    family = _find_family("general.architecture", architecture, {f.gguf_architecture: f for f in FAMILIES})

    def key(name: str) -> str:
        return f"{architecture}.{name}"

    if real(settings, key("expert_count"), 0.0) > 0.0:
        raise UnsupportedError("The file holds a mixture of experts, which is not supported. Choose a dense model.")

    num_layers = count(settings, key("block_count"), most=MAX_LAYERS)
    num_heads = count(settings, key("attention.head_count"))
    hidden_size = count(settings, key("embedding_length"))
    head_dim = count(settings, key("attention.key_length"), hidden_size // num_heads)
    embedding = checkpoint.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError("The tensor 'token_embd.weight' is missing from the file. Fetch it again.")
    rotary = _gguf_rotary(checkpoint, family, key, head_dim)
    config = TrunkConfig(
        family=family.name,
        vocab_size=embedding.shape[0],
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=count(settings, key("attention.head_count_kv"), num_heads),
        head_dim=head_dim,
        intermediate_size=count(settings, key("feed_forward_length")),
        norm_eps=positive(settings, key("attention.layer_norm_rms_epsilon")),
        max_context=_scaled_context(count(settings, key("context_length")), rotary),
        rotary=rotary,
        windows=(sliding_window(settings, key("attention.sliding_window")),) * num_layers,
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


def _gguf_rotary(checkpoint: Checkpoint, family: Family, key: Callable[[str], str], head_dim: int) -> RotaryConfig:
    settings = checkpoint.metadata
    base: dict[str, Any] = {
        "theta": positive(settings, key("rope.freq_base"), 10000.0),
        "dim": count(settings, key("rope.dimension_count"), head_dim),
    }
    if base["dim"] != head_dim and family.gguf_interleaves:
        raise UnsupportedError(
            f"{key('rope.dimension_count')} is {base['dim']} and a head has {head_dim} dimensions: turning a part of "
            "them is not supported for this architecture."
        )
    scaling, factor = _gguf_scaling(settings, key)
    if factors := checkpoint.tensors.get(GGUF_ROTARY_FACTORS):
        if scaling != "none":
            raise UnsupportedError(f"rope scaling {scaling!r} together with {GGUF_ROTARY_FACTORS} is not supported.")
        return RotaryConfig(**base, scaling="factors", factors=_rotary_factors(factors, base["dim"]))
    if scaling != "yarn":
        return RotaryConfig(**base, scaling=scaling, factor=factor)
    for unread in ("yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"):
        if key(f"rope.scaling.{unread}") in settings:
            raise UnsupportedError(f"yarn scaling with {unread} is not supported.")
    usual = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return _yarn(
        **base,
        factor=factor,
        original_context=count(settings, key("rope.scaling.original_context_length")),
        beta_fast=positive(settings, key("rope.scaling.yarn_beta_fast"), 32.0),
        beta_slow=positive(settings, key("rope.scaling.yarn_beta_slow"), 1.0),
        attention_factor=usual * positive(settings, key("rope.scaling.attn_factor"), 1.0),
    )


def _gguf_scaling(settings: Settings, key: Callable[[str], str]) -> tuple[Literal["none", "linear", "yarn"], float]:
    """The rule by which frequencies are stretched, and by how much.

    Raises:
        UnsupportedError: a rule that is not supported.
    """
    stated = settings.get(key("rope.scaling.type"))
    if stated not in (None, "none", "linear", "yarn"):
        raise UnsupportedError(f"rope scaling {stated!r} is not supported; linear and yarn are.")
    name = key("rope.scaling.factor")
    if name not in settings and key("rope.scale_linear") in settings:  # until November 2023
        name = key("rope.scale_linear")
    # a factor without a rule is linear, and a factor of 1 or 0 is none
    if stated is None and real(settings, name, 0.0) in (0.0, 1.0):
        return "none", 1.0
    if stated == "none":
        return "none", 1.0
    return "yarn" if stated == "yarn" else "linear", positive(settings, name)


def _rotary_factors(tensor: Tensor, dim: int) -> tuple[float, ...]:
    factors = tuple(tensor.dequantize().ravel().tolist())
    if len(factors) != dim // 2 or not all(0.0 < factor < math.inf for factor in factors):
        raise CheckpointError(
            f"The tensor {GGUF_ROTARY_FACTORS!r} holds no {dim // 2} positive numbers, one for each pair of a head's "
            "dimensions. The file is damaged; fetch it again."
        )
    return factors
