"""Runs programs in PyTorch, with gradients, over whole texts: the runtime of training.

Tokens are [B, T]; a row of the batch may hold several documents, one after the
other, and padding. Values are [B, T, width]. What a row sees is the caller's
affair: an `Attend` is given queries, keys and values of each attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
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

# rows of a chain's attention at once: few enough to skip keys after them, enough for products of full speed
_QUERY_ROWS = 192


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
        window = torch.arange(len(self.tokens), device=self.tokens.device)[:, None].expand_as(self.documents)
        rows = torch.stack([window, self.documents], 2).flatten(0, 1)
        kinds, lengths = torch.unique_consecutive(rows, dim=0, return_counts=True)
        return [(length, document < 0) for length, document in zip(lengths.tolist(), kinds[:, 1].tolist(), strict=True)]


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


class CausalAttention:
    """Rows see their document up to themselves. Keys and values are remembered by layer."""

    def __init__(self, batch: TextBatch) -> None:
        """For the rows of a batch."""
        self._runs = batch.runs()
        self.stored: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, operation: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Attend`."""
        self.stored[operation.layer] = (k, v)

        def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            length = q.shape[1]
            far = bool(operation.window) and length > operation.window
            mask = _sees(length, length, 0, 0, q.device) if far else None
            if mask is not None:
                mask = mask.triu(1 - operation.window)
            return functional.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=mask, is_causal=not far, scale=operation.scale,
                enable_gqa=len(k) != len(q),
            )[0]  # fmt: skip

        return _by_document(self._runs, mix, q, k, v)


class ChainAttention:
    """Rows of depth j of an unrolled module: they see the text up to where their chain began, and the chain.

    Row t of depth j ends a chain whose first row, of depth 1, stands at t - j + 1. It sees depth-1 rows up to
    there, and one row of each depth 2 ... j, the last of which is its own.
    """

    def __init__(self, batch: TextBatch, first: CausalAttention) -> None:
        """After depth 1 has run, whose keys and values `first` remembers."""
        self._runs = batch.runs()
        self._first = first
        self._depth = 1
        self._chain: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def deepen(self) -> None:
        """Go on to the next depth."""
        self._depth += 1

    def __call__(self, operation: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Attend`."""
        if operation.window:
            raise NotImplementedError("unrolled heads see their whole text")
        chain = self._chain.setdefault(operation.layer, [])
        chain.append((k, v))
        # depth d of the chain stands j - d rows before
        keys, values = (
            [_moved(pair[side], self._depth - 2 - index) for index, pair in enumerate(chain)] for side in (0, 1)
        )
        behind = self._depth - 1

        def mix(q: Tensor, first_k: Tensor, first_v: Tensor, *own: Tensor) -> Tensor:
            return _mix_chain(behind, q, first_k, first_v, own[: len(keys)], own[len(keys) :])

        return _by_document(self._runs, mix, q * operation.scale, *self._first.stored[operation.layer], *keys, *values)


def _mix_chain(
    behind: int, q: Tensor, first_k: Tensor, first_v: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]
) -> Tensor:
    """Attention within one document, some rows at a time, so that keys after them are not looked at.

    Args:
        behind: keys of depth 1 nearer than this many rows are hidden.
        q: [heads, T, head_dim], scaled.
        first_k, first_v: [kv_heads, T, head_dim], of depth 1.
        keys, values: the same of each row's own chain, depth 2, 3, ...

    Returns:
        [heads, T, head_dim].
    """
    outputs = []
    begin = 0
    groups = torch.unflatten(q, 0, (len(first_k), -1))
    for q_rows in torch.split(groups, _QUERY_ROWS, 2):  # [kv_heads, group, R, head_dim]
        end = begin + q_rows.shape[2]
        seen = max(end - behind, 0)
        scores = torch.unflatten(q_rows.flatten(1, 2) @ first_k[:, :seen].transpose(1, 2), 1, q_rows.shape[1:3])
        scores = scores.masked_fill(~_sees(end - begin, seen, begin, behind, q.device), -math.inf)
        own = [(q_rows * key[:, None, begin:end]).sum(3, keepdim=True) for key in keys]
        weights = torch.cat([scores, *own], 3).softmax(3)
        mixed = torch.unflatten(weights[..., :seen].flatten(1, 2) @ first_v[:, :seen], 1, q_rows.shape[1:3])
        for index, value in enumerate(values):
            mixed = mixed + weights[..., seen + index, None] * value[:, None, begin:end]
        outputs.append(mixed)
        begin = end
    return torch.cat(outputs, 2).flatten(0, 1)


def _sees(num_rows: int, num_keys: int, first_row: int, behind: int, device: torch.device) -> Tensor:
    """bool [rows, keys]: key s is seen by row t if s <= t - behind."""
    return torch.ones(num_rows, num_keys, dtype=torch.bool, device=device).tril(first_row - behind)


def _by_document(runs: Sequence[tuple[int, bool]], mix: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """What `mix` makes of each document's rows; most of a window is hidden from most of its rows.

    Args:
        runs: see `TextBatch.runs`.
        mix: from and to [heads, rows, head_dim].
        values: [B, heads, T, head_dim].

    Returns:
        [B, heads, T, head_dim]; zeros in padding.
    """
    lengths = [length for length, _ in runs]
    # a split's gradient is put together once, a slice's is a tensor of the whole size for each
    split = [value.transpose(1, 2).flatten(0, 1).split_with_sizes(lengths) for value in values]
    mixed = []
    for (_, padding), *pieces in zip(runs, *split, strict=True):
        if padding:
            mixed.append(torch.zeros_like(pieces[0]))
        else:
            mixed.append(mix(*(piece.transpose(0, 1) for piece in pieces)).transpose(0, 1))
    return torch.unflatten(torch.cat(mixed), 0, (len(values[0]), -1)).transpose(1, 2)


def _moved(x: Tensor, rows: int) -> Tensor:
    """x [B, H, T, D], each row taken from so many rows before; zeros where there is none."""
    return x if rows == 0 else functional.pad(x, (0, 0, rows, 0))[:, :, : x.shape[2]]


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


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """What operations read beside values and weights.

    Attributes:
        batch: the texts.
        attend: what rows see.
        turns: cosine and sine of the rotary embedding, [B, 1, T, rotated / 2].
        state: see `run_program`.
    """

    batch: TextBatch
    attend: Attend
    turns: tuple[Tensor, Tensor]
    state: Tensor | None

    @classmethod
    def of(cls, rotary: RotaryConfig, batch: TextBatch, attend: Attend, state: Tensor | None = None) -> Surroundings:
        """Those of a whole program; see `run_program`."""
        return cls(batch, attend, _turns(rotary, batch.positions), state)


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
                values[out] = _rotate(values[x], head_dim, *around.turns)
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


def _turns(rotary: RotaryConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine [B, 1, T, rotated / 2]."""
    frequencies, factor = inverse_frequencies(rotary)
    # the angle in single precision, as models were trained; what comes of it as exact as any weights
    angles = positions[:, None, :, None].float() * torch.from_numpy(frequencies).to(positions.device)
    return angles.double().cos() * factor, angles.double().sin() * factor


def _rotate(x: Tensor, head_dim: int, cosine: Tensor, sine: Tensor) -> Tensor:
    heads = torch.unflatten(x, 2, (-1, head_dim)).transpose(1, 2)  # [B, H, T, D]
    half = cosine.shape[3]
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine, rest], 3)
    return turned.transpose(1, 2).flatten(2)


def _attention(operation: Attention, values: Mapping[Value, Tensor], attend: Attend) -> Tensor:
    q, k, v = (
        torch.unflatten(values[value], 2, (-1, operation.head_dim)).transpose(1, 2)
        for value in (operation.q, operation.k, operation.v)
    )
    return attend(operation, q, k, v).transpose(1, 2).flatten(2)
