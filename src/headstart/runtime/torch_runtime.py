"""Runs programs in PyTorch, with gradients, over whole texts: the runtime of training.

Tokens are [B, T]; a row of the batch may hold several documents, one after the
other, and padding. Values are [B, T, width]. What a row sees is the caller's
affair: an `Attend` is given queries, keys and values of each attention.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from headstart.architectures.decoder import decoder_program
from headstart.architectures.program import (
    Add,
    Attention,
    Concat,
    Embed,
    Linear,
    Operation,
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

PADDING = -1


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """Packed texts.

    Attributes:
        tokens: int64 [B, T].
        documents: int64 [B, T], `PADDING` where there is none; a run of equal numbers is a document.
        positions: int64 [B, T], position within the document; 0 in padding.
    """

    tokens: Tensor
    documents: Tensor
    positions: Tensor

    def begins(self) -> Tensor:
        """bool [B, T]: whether a row has no token before it."""
        return self.positions == 0

    def runs(self) -> list[tuple[int, bool]]:
        """Lengths of the runs of rows that belong together, all windows after each other, and whether it is padding."""
        begins = torch.ones_like(self.documents, dtype=torch.bool)
        begins[:, 1:] = self.documents[:, 1:] != self.documents[:, :-1]
        (first,) = begins.flatten().nonzero(as_tuple=True)
        lengths = first.diff(append=first.new_tensor([begins.numel()]))
        padding = self.documents.flatten()[first] < 0
        return list(zip(lengths.tolist(), padding.tolist(), strict=True))


class Attend(Protocol):
    """Attention over whatever the caller lets rows see."""

    def __call__(self, operation: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Mix values.

        Args:
            operation: its layer, scale and window.
            q: [B, heads, T, head_dim].
            k, v: [B, kv_heads, T, head_dim].

        Returns:
            [B, heads, T, head_dim].
        """


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a program gave.

    Attributes:
        hidden: [B, T, width], what the unembedding is applied to.
        unembedding: name of its matrix.
        kept: [B, T, width], the kept values side by side, or `None` if there are none.
    """

    hidden: Tensor
    unembedding: str
    kept: Tensor | None


def run_program(
    program: Program,
    weights: Mapping[str, Tensor],
    rotary: RotaryConfig,
    batch: TextBatch,
    attend: Attend,
    state: Tensor | None = None,
) -> Outcome:
    """Walk a program up to its unembedding, which is left to the caller: logits are large.

    Args:
        program: of any architecture; it ends in a `Linear` without bias.
        weights: by the program's names.
        rotary: which way `Rotary` turns.
        batch: the texts.
        attend: what rows see.
        state: [B, T, width], what was kept for the token *before* each row (see `shifted`).
    """
    last = program.operations[-1]
    if not isinstance(last, Linear) or last.bias is not None:
        raise AssertionError("a program ends in its unembedding")
    values: dict[Value, Tensor] = {}
    run_operations(program.operations[:-1], values, weights, Surroundings.of(rotary, batch, attend, state))
    kept = torch.cat([values[value] for value in program.kept], 2) if program.kept else None
    return Outcome(values[last.x], last.weight, kept)


class Turns:
    """Cosines and sines by which rows are turned."""

    def __init__(self, rotary: RotaryConfig, positions: Tensor) -> None:
        """For positions [B, T]."""
        frequencies, factor = inverse_frequencies(rotary)
        # the angle in single precision, as models were trained; what comes of it as exact as any weights
        angles = positions[..., None, None].float() * torch.from_numpy(frequencies).to(positions.device)
        exact = (angles.double().cos() * factor, angles.double().sin() * factor)
        self._exact = tuple(torch.cat([half, half], 3) for half in exact)
        self._rounded: dict[torch.dtype, tuple[Tensor, ...]] = {}

    def of(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Cosine and sine [B, T, 1, rotated], the two halves alike; one pair for all blocks, which keep it."""
        if dtype not in self._rounded:
            self._rounded[dtype] = tuple(table.to(dtype) for table in self._exact)
        return self._rounded[dtype]


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """What operations read beside values and weights.

    Attributes:
        batch: the texts.
        attend: what rows see.
        turns: of the rotary embedding.
        state: see `run_program`.
    """

    batch: TextBatch
    attend: Attend
    turns: Turns
    state: Tensor | None

    @classmethod
    def of(cls, rotary: RotaryConfig, batch: TextBatch, attend: Attend, state: Tensor | None = None) -> Surroundings:
        """Those of a whole program; see `run_program`."""
        return cls(batch, attend, Turns(rotary, batch.positions), state)


def run_operations(
    operations: Sequence[Operation],
    values: dict[Value, Tensor],
    weights: Mapping[str, Tensor],
    around: Surroundings,
) -> None:
    """Walk some operations of a program in order.

    Args:
        operations: none of them over a vocabulary.
        values: [B, T, width] of what they read of earlier ones; their own are added.
        weights: by the program's names.
        around: whatever else they read.
    """
    for operation in operations:
        match operation:
            case Embed(out, weight):
                values[out] = functional.embedding(around.batch.tokens, weights[weight])
            case State(out, offset):
                assert around.state is not None, "this program reads states"
                values[out] = around.state[..., offset : offset + out.width]
            case Concat(out, parts):
                values[out] = torch.cat([values[part] for part in parts], 2)
            case RmsNorm(out, x, weight, eps, span):
                values[out] = _rms_norm(values[x], weights[weight], eps, span)
            case Linear(out, x, weight, bias):
                values[out] = functional.linear(values[x], weights[weight], None if bias is None else weights[bias])
            case Rotary(out, x, head_dim):
                values[out] = _rotate(values[x], head_dim, around.turns)
            case Attention():
                values[operation.out] = _attention(operation, values, around.attend)
            case Silu(out, x):
                values[out] = functional.silu(values[x])
            case SiluGate(out, gate, up):
                values[out] = functional.silu(values[gate]) * values[up]
            case Add(out, x, y):
                values[out] = values[x] + values[y]
            case SelectWanted(out, x):
                values[out] = values[x]


def shifted(kept: Tensor, batch: TextBatch) -> Tensor:
    """What was kept [B, T, width], moved to the row after it; zeros where a document begins."""
    moved = functional.pad(kept, (0, 0, 1, 0))[:, :-1]
    return moved.masked_fill(batch.begins()[..., None], 0.0)


def load_weights(
    checkpoint: Checkpoint, dtype: torch.dtype = torch.float32, *, only: Collection[str] | None = None
) -> dict[str, Tensor]:
    """A trunk's weights by the names of its program, as the file's formats round them.

    Args:
        checkpoint: the opened model.
        dtype: of the tensors.
        only: names to load, as far as the program has them; all by default.

    Raises:
        CheckpointError, UnsupportedError: as for any runtime.
    """
    family, config = read_config(checkpoint)
    placed = place_weights(checkpoint, family, config, decoder_program(config))
    weights = {}
    for name, weight in placed.items():
        if only is not None and name not in only:
            continue
        values = weight.tensor.dequantize()
        ordered = values if weight.row_order is None else values[weight.row_order]
        weights[name] = torch.from_numpy(np.array(ordered)).to(dtype)
    return weights


def _rms_norm(x: Tensor, weight: Tensor, eps: float, span: int) -> Tensor:
    parts = torch.unflatten(x, 2, (-1, span))
    if x.dtype == torch.bfloat16:
        parts = parts.float()
    normed = parts * torch.rsqrt(parts.square().mean(3, keepdim=True) + eps)
    return (normed * weight).flatten(2).to(x.dtype)


def _rotate(x: Tensor, head_dim: int, turns: Turns) -> Tensor:
    heads = torch.unflatten(x, 2, (-1, head_dim))  # [B, T, H, D]
    cosine, sine = turns.of(x.dtype)
    dim = cosine.shape[3]
    if dim < head_dim:
        return torch.cat([_turned(heads[..., :dim], cosine, sine), heads[..., dim:]], 3).flatten(2)
    return _turned(heads, cosine, sine).flatten(2)


def _turned(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    # whole heads at a time: halves would be worked on in runs too short for a vector unit
    first, second = heads.chunk(2, 3)
    return heads * cosine + torch.cat([-second, first], 3) * sine


def _attention(operation: Attention, values: Mapping[Value, Tensor], attend: Attend) -> Tensor:
    q, k, v = (
        torch.unflatten(values[value], 2, (-1, operation.head_dim)).transpose(1, 2)
        for value in (operation.q, operation.k, operation.v)
    )
    return attend(operation, q, k, v).transpose(1, 2).flatten(2)
