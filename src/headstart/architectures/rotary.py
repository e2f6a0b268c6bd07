"""Rotary position embedding: which frequencies a model turns its heads by.

A pair i of a head of d dimensions turns by position * inverse_frequency[i].
Scaling rules stretch the frequencies for longer contexts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class RotaryConfig:
    """Frequencies of a model.

    Attributes:
        theta: base of the frequencies.
        dim: dimensions of a head that turn, an even number.
        scaling: the rule; "factors" divides by given numbers (as GGUF stores llama3).
        factor: how much longer the context became (linear, llama3, yarn).
        original_context: context of the training before it (llama3, yarn).
        low_freq_factor, high_freq_factor: bounds of llama3's blend.
        beta_fast, beta_slow: turns over the original context that bound yarn's blend.
        attention_factor: on cosine and sine (yarn); `None` takes 0.1 ln(factor) + 1.
        truncate: whether yarn's bounds are rounded outward to whole dimensions.
        factors: one for each pair ("factors").
    """

    theta: float
    dim: int
    scaling: Literal["none", "linear", "llama3", "yarn", "factors"] = "none"
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    factors: tuple[float, ...] = ()


def inverse_frequencies(config: RotaryConfig) -> tuple[NDArray[np.float32], float]:
    """Frequencies [dim / 2] and the factor on cosine and sine.

    Source: Su et al. 2104.09864; llama3: the Llama 3.1 reference; yarn: Peng et al. 2309.00071.
    """
    # in float32 step by step, since models were trained with frequencies rounded this way
    exponents = np.arange(0, config.dim, 2, dtype=np.float32) / np.float32(config.dim)
    plain = (np.float32(1.0) / np.power(np.float32(config.theta), exponents)).astype(np.float32)
    match config.scaling:
        case "none":
            return plain, 1.0
        case "linear":
            return (plain / np.float32(config.factor)).astype(np.float32), 1.0
        case "factors":
            return (plain / np.asarray(config.factors, np.float32)).astype(np.float32), 1.0
        case "llama3":
            return _llama3(config, plain), 1.0
        case "yarn":
            return _yarn(config, plain)


def _llama3(config: RotaryConfig, plain: NDArray[np.float32]) -> NDArray[np.float32]:
    wavelengths = 2 * math.pi / plain
    low_wavelength = config.original_context / config.low_freq_factor
    high_wavelength = config.original_context / config.high_freq_factor
    blend = (config.original_context / wavelengths - config.low_freq_factor) / (
        config.high_freq_factor - config.low_freq_factor
    )
    blended = (1 - blend) * plain / config.factor + blend * plain
    long_ones = np.where(wavelengths > low_wavelength, plain / config.factor, blended)
    return np.where(wavelengths < high_wavelength, plain, long_ones).astype(np.float32)


def _yarn(config: RotaryConfig, plain: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    def dimension_of(turns: float) -> float:
        # the pair that turns so often over the original context
        return (
            config.dim
            * math.log(config.original_context / (turns * 2 * math.pi))
            / (2 * math.log(config.theta))
        )  # fmt: skip

    low, high = dimension_of(config.beta_fast), dimension_of(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.dim - 1)
    ramp = (np.arange(config.dim // 2, dtype=np.float32) - low) / max(high - low, 0.001)
    keep = 1 - np.clip(ramp, 0, 1)  # 1: a fast pair, left as it is; 0: a slow one, stretched
    frequencies = plain / config.factor * (1 - keep) + plain * keep
    factor = config.attention_factor
    if factor is None:
        factor = 0.1 * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0
    return frequencies.astype(np.float32), factor
