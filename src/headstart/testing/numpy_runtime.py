"""Runs a program in float64, one sequence at once: the oracle for every other runtime.

It is written to be read beside `headstart.architectures.program`, and shares
nothing with the native core but that and the dequantised weights. Heads run by it
in `headstart.testing.numpy_heads`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.decoder import decoder_program
from headstart.architectures.program import (
    Add,
    Attention,
    Concat,
    Embed,
    Linear,
    Program,
    RmsNorm,
    Rotary,
    SelectWanted,
    Silu,
    SiluGate,
    State,
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
    return _run_trunk(checkpoint, tokens, parents, ()).logits


def reference_taps(checkpoint: Checkpoint, tokens: Sequence[int], taps: Sequence[int]) -> Floats:
    """The outputs [T, len(taps) * hidden_size] of a model's layers for a text, as `decoder_program` numbers them."""
    return _run_trunk(checkpoint, tokens, None, taps).kept


def reference_weights(checkpoint: Checkpoint) -> dict[str, Floats]:
    """A model's weights by the names of its program, in float64."""
    family, config = read_config(checkpoint)
    weights = {}
    for name, placed in place_weights(checkpoint, family, config, decoder_program(config)).items():
        values = placed.tensor.dequantize().astype(np.float64)
        weights[name] = values if placed.row_order is None else values[placed.row_order]
    return weights


def _run_trunk(
    checkpoint: Checkpoint, tokens: Sequence[int], parents: Sequence[int] | None, taps: Sequence[int]
) -> Outcome:
    _, config = read_config(checkpoint)
    ancestors = _ancestors(list(range(-1, len(tokens) - 1)) if parents is None else parents)
    rows = RowsSeen(np.asarray(tokens), ancestors.sum(axis=1) - 1, ancestors)
    return run_program(decoder_program(config, taps), reference_weights(checkpoint), config.rotary, rows)


@dataclass(frozen=True, slots=True, eq=False)
class RowsSeen:
    """Rows of a pass and what each sees.

    Attributes:
        tokens: int [T].
        positions: int [T].
        visible: bool [T, P + T], which of the keys of earlier passes, then of this one's, a row sees.
        states: [T, width], what was kept for the token before each row, if the program reads it.
        past: keys and values [P, kv_heads, head_dim] of earlier passes, by layer; none unless given.
    """

    tokens: NDArray[np.int_]
    positions: NDArray[np.int_]
    visible: NDArray[np.bool_]
    states: Floats | None = None
    past: Mapping[int, tuple[Floats, Floats]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a program gave.

    Attributes:
        logits: [T, V].
        kept: [T, width], side by side; of no width if it keeps nothing.
        stored: keys and values of earlier passes and this one [P + T, kv_heads, head_dim], by layer.
    """

    logits: Floats
    kept: Floats
    stored: dict[int, tuple[Floats, Floats]]


def run_program(program: Program, weights: Mapping[str, Floats], rotary: RotaryConfig, rows: RowsSeen) -> Outcome:
    """One pass of a program, every row wanted.

    Args:
        program: of any architecture.
        weights: float64, by the program's names.
        rotary: which way `Rotary` turns.
        rows: the rows.
    """
    num_rows = len(rows.tokens)
    frequencies, factor = inverse_frequencies(rotary)
    # angles in single precision, as models were trained
    angles = (rows.positions[:, None].astype(np.float32) * frequencies).astype(np.float64)  # [T, rotated / 2]
    cosine, sine = np.cos(angles) * factor, np.sin(angles) * factor
    values: dict[Value, Floats] = {}
    stored = dict(rows.past)
    for operation in program.operations:
        match operation:
            case Embed(out, weight):
                values[out] = weights[weight][rows.tokens]
            case State(out, offset):
                assert rows.states is not None, "this program reads states"
                values[out] = rows.states[:, offset : offset + out.width]
            case Concat(out, parts):
                values[out] = np.concatenate([values[part] for part in parts], axis=1)
            case RmsNorm(out, x, weight, eps, span):
                parts_of_x = values[x].reshape(num_rows, -1, span)
                normed = parts_of_x / np.sqrt((parts_of_x**2).mean(axis=2, keepdims=True) + eps) * weights[weight]
                values[out] = normed.reshape(num_rows, -1)
            case Linear(out, x, weight, bias):
                values[out] = values[x] @ weights[weight].T + (0.0 if bias is None else weights[bias])
            case Rotary(out, x, head_dim):
                values[out] = _rotate(values[x], head_dim, cosine, sine)
            case Attention():
                stored[operation.layer] = _with_past(operation, values, stored.get(operation.layer))
                values[operation.out] = _attend(operation, values[operation.q], *stored[operation.layer], rows)
            case Silu(out, x):
                values[out] = values[x] / (1.0 + np.exp(-values[x]))
            case SiluGate(out, gate, up):
                values[out] = values[gate] / (1.0 + np.exp(-values[gate])) * values[up]
            case Add(out, x, y):
                values[out] = values[x] + values[y]
            case SelectWanted(out, x):
                values[out] = values[x]
    kept = np.concatenate([np.empty((num_rows, 0)), *(values[value] for value in program.kept)], axis=1)
    return Outcome(values[program.logits], kept, stored)


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


def _with_past(
    operation: Attention, values: Mapping[Value, Floats], past: tuple[Floats, Floats] | None
) -> tuple[Floats, Floats]:
    shape = (-1, operation.num_kv_heads, operation.head_dim)
    keys, mixed = values[operation.k].reshape(shape), values[operation.v].reshape(shape)
    return (keys, mixed) if past is None else (np.concatenate([past[0], keys]), np.concatenate([past[1], mixed]))


def _attend(operation: Attention, queries: Floats, keys: Floats, mixed: Floats, rows: RowsSeen) -> Floats:
    visible = rows.visible
    if operation.window:  # of trunks alone, which run a text in one pass
        visible = visible & (rows.positions > rows.positions[:, None] - operation.window)
    group = operation.num_heads // operation.num_kv_heads
    q = queries.reshape(len(visible), operation.num_heads, operation.head_dim)
    scores = np.einsum("thd,shd->hts", q, keys.repeat(group, axis=1)) * operation.scale
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    outputs: Floats = np.einsum("hts,shd->thd", weights, mixed.repeat(group, axis=1))
    return outputs.reshape(len(visible), -1)
