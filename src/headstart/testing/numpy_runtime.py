"""Runs a program in float64, one sequence at once, with nothing cached: the oracle for every other runtime.

It is written to be read beside `headstart.architectures.program`, and shares
nothing with the native core but that and the dequantised weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.decoder import decoder_program
from headstart.architectures.program import (
    Add,
    Attention,
    Embed,
    Linear,
    Program,
    RmsNorm,
    Rotary,
    SelectWanted,
    SiluGate,
    Value,
)
from headstart.architectures.reading import read_config
from headstart.architectures.rotary import RotaryConfig, inverse_frequencies
from headstart.architectures.weights import place_weights
from headstart.checkpoint import Checkpoint

Floats = NDArray[np.float64]


def reference_logits(checkpoint: Checkpoint, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Floats:
    """Logits [T, V] of a checkpoint's model after each token.

    Args:
        checkpoint: the opened model.
        tokens: a text, or the nodes of a tree, parents before children.
        parents: index of the token before each one, -1 if it begins a text;
            each follows the one before it unless given.
    """
    family, config = read_config(checkpoint)
    program = decoder_program(config)
    weights: dict[str, Floats] = {}
    for name, placed in place_weights(checkpoint, family, config, program).items():
        values = placed.tensor.dequantize().astype(np.float64)
        weights[name] = values if placed.row_order is None else values[placed.row_order]
    parents = list(range(-1, len(tokens) - 1)) if parents is None else parents
    return run_program(program, weights, config.rotary, tokens, parents)


def run_program(
    program: Program,
    weights: Mapping[str, Floats],
    rotary: RotaryConfig,
    tokens: Sequence[int],
    parents: Sequence[int],
) -> Floats:
    """The program's logits [T, V], every row wanted.

    Args:
        program: of any architecture.
        weights: float64, by the program's names.
        rotary: which way `Rotary` turns.
        tokens, parents: as in `reference_logits`.
    """
    ancestors = _ancestors(parents)
    positions = ancestors.sum(axis=1) - 1
    frequencies, factor = inverse_frequencies(rotary)
    # angles in single precision, as models were trained
    angles = (positions[:, None].astype(np.float32) * frequencies).astype(np.float64)  # [T, rotated / 2]
    cosine, sine = np.cos(angles) * factor, np.sin(angles) * factor
    values: dict[Value, Floats] = {}
    for operation in program.operations:
        match operation:
            case Embed(out, weight):
                values[out] = weights[weight][list(tokens)]
            case RmsNorm(out, x, weight, eps, span):
                parts = values[x].reshape(len(tokens), -1, span)
                normed = parts / np.sqrt((parts**2).mean(axis=2, keepdims=True) + eps) * weights[weight]
                values[out] = normed.reshape(len(tokens), -1)
            case Linear(out, x, weight, bias):
                values[out] = values[x] @ weights[weight].T + (0.0 if bias is None else weights[bias])
            case Rotary(out, x, head_dim):
                values[out] = _rotate(values[x], head_dim, cosine, sine)
            case Attention():
                visible = ancestors & (positions > positions[:, None] - (operation.window or len(tokens)))
                values[operation.out] = _attend(operation, values, visible)
            case SiluGate(out, gate, up):
                values[out] = values[gate] / (1.0 + np.exp(-values[gate])) * values[up]
            case Add(out, x, y):
                values[out] = values[x] + values[y]
            case SelectWanted(out, x):
                values[out] = values[x]
    return values[program.logits]


def _ancestors(parents: Sequence[int]) -> NDArray[np.bool_]:
    """[T, T]: whether the row's path contains the column; a row's own does."""
    paths = np.eye(len(parents), dtype=np.bool_)
    for row, parent in enumerate(parents):
        if parent >= 0:
            paths[row] |= paths[parent]
    return paths


def _rotate(x: Floats, head_dim: int, cosine: Floats, sine: Floats) -> Floats:
    heads = x.reshape(len(x), -1, head_dim).copy()
    half = cosine.shape[1]
    first, second = heads[:, :, :half].copy(), heads[:, :, half : 2 * half].copy()
    heads[:, :, :half] = first * cosine[:, None] - second * sine[:, None]
    heads[:, :, half : 2 * half] = second * cosine[:, None] + first * sine[:, None]
    return heads.reshape(x.shape)


def _attend(operation: Attention, values: Mapping[Value, Floats], visible: NDArray[np.bool_]) -> Floats:
    def heads(value: Value, num_heads: int) -> Floats:
        return values[value].reshape(len(visible), num_heads, operation.head_dim)

    group = operation.num_heads // operation.num_kv_heads
    q = heads(operation.q, operation.num_heads)
    k = heads(operation.k, operation.num_kv_heads).repeat(group, axis=1)
    v = heads(operation.v, operation.num_kv_heads).repeat(group, axis=1)
    scores = np.einsum("thd,shd->hts", q, k) * operation.scale
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    mixed: Floats = np.einsum("hts,shd->thd", weights, v)
    return mixed.reshape(len(visible), -1)
