"""Attention over packed texts in PyTorch: what each row sees, and nothing of models.

Documents are taken each by itself, as most of a window is hidden from most of its rows; neighbours of one length, such
as windows that a single document fills, go together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from headstart.architectures.program import Attention
from headstart.runtime.torch_runtime import TextBatch

# rows of a chain's attention at once: few enough to skip keys after them, enough for products of full speed
_QUERY_ROWS = 192

# width of a head below which float32 is the faster type on CPUs: 32 takes 0.7 of bfloat16's time there, 64 as long
_NARROW = 64


class CausalAttention:
    """Rows see their document up to themselves. Keys and values are remembered by layer."""

    def __init__(self, batch: TextBatch) -> None:
        """For the rows of a batch."""
        self._documents = _Documents(batch)
        self.stored: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, operation: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Attend`."""
        self.stored[operation.layer] = (k, v)

        dtype, wide = q.dtype, _product_type(q)

        def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            length = q.shape[2]
            far = bool(operation.window) and length > operation.window
            mask = _sees(length, length, 0, 0, q.device) if far else None
            if mask is not None:
                mask = mask.triu(1 - operation.window)
            return functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=not far, scale=operation.scale, enable_gqa=k.shape[1] != q.shape[1]
            )

        with torch.autocast(q.device.type, enabled=False):
            return self._documents.mixed(mix, q.to(wide), k.to(wide), v.to(wide)).to(dtype)


class ChainAttention:
    """Rows of depth j of an unrolled module: they see the text up to where their chain began, and the chain.

    Row t of depth j ends a chain whose first row, of depth 1, stands at t - j + 1. It sees depth-1 rows up to
    there, and one row of each depth 2 ... j, the last of which is its own.
    """

    def __init__(self, batch: TextBatch, first: CausalAttention) -> None:
        """After depth 1 has run, whose keys and values `first` remembers."""
        self._documents = _Documents(batch)
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

        first = self._first.stored[operation.layer]
        return self._documents.mixed(mix, q * operation.scale, *first, *keys, *values)


def _mix_chain(
    behind: int, q: Tensor, first_k: Tensor, first_v: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]
) -> Tensor:
    """Attention within documents, some rows at a time, so that keys after them are not looked at.

    Args:
        behind: keys of depth 1 nearer than this many rows are hidden.
        q: [N, heads, T, head_dim], scaled.
        first_k, first_v: [N, kv_heads, T, head_dim], of depth 1.
        keys, values: the same of each row's own chain, depth 2, 3, ...

    Returns:
        [N, heads, T, head_dim].
    """
    outputs = []
    begin = 0
    # laid out once for all products: parts of it need no copies of their own
    q, first_k, first_v = (tensor.contiguous() for tensor in (q, first_k, first_v))
    groups = torch.unflatten(q, 1, (first_k.shape[1], -1))
    for q_rows in torch.split(groups, _QUERY_ROWS, 3):  # [N, kv_heads, group, R, head_dim]
        end = begin + q_rows.shape[3]
        seen = max(end - behind, 0)
        scores = torch.unflatten(q_rows.flatten(2, 3) @ first_k[:, :, :seen].transpose(2, 3), 2, q_rows.shape[2:4])
        scores = scores.masked_fill(~_sees(end - begin, seen, begin, behind, q.device), -math.inf)
        own = [(q_rows * key[:, :, None, begin:end]).sum(4, keepdim=True) for key in keys]
        weights = torch.cat([scores, *own], 4).softmax(4)
        mixed = torch.unflatten(weights[..., :seen].flatten(2, 3) @ first_v[:, :, :seen], 2, q_rows.shape[2:4])
        for index, value in enumerate(values):
            mixed = mixed + weights[..., seen + index, None] * value[:, :, None, begin:end]
        outputs.append(mixed)
        begin = end
    return torch.cat(outputs, 3).flatten(1, 2)


def _sees(num_rows: int, num_keys: int, first_row: int, behind: int, device: torch.device) -> Tensor:
    """bool [rows, keys]: key s is seen by row t if s <= t - behind."""
    return torch.ones(num_rows, num_keys, dtype=torch.bool, device=device).tril(first_row - behind)


class _Documents:
    """The documents of a batch, neighbours of one length together."""

    def __init__(self, batch: TextBatch) -> None:
        """For the rows of a batch."""
        neighbours = ((len(list(group)), *run) for run, group in groupby(batch.runs()))
        self._groups = [(count, length, padding) for count, length, padding in neighbours]

    def mixed(self, mix: Callable[..., Tensor], *values: Tensor) -> Tensor:
        """What `mix` makes of each document's rows.

        Args:
            mix: from and to [N, heads, rows, head_dim], N documents.
            values: [B, heads, T, head_dim].

        Returns:
            [B, heads, T, head_dim]; zeros in padding.
        """
        sizes = [count * length for count, length, _ in self._groups]
        # a split's gradient is put together once, a slice's is a tensor of the whole size for each
        split = [value.transpose(1, 2).flatten(0, 1).split_with_sizes(sizes) for value in values]
        found = []
        for (count, length, padding), *pieces in zip(self._groups, *split, strict=True):
            if padding:
                found.append(torch.zeros_like(pieces[0]))
            else:
                documents = (torch.unflatten(piece, 0, (count, length)).transpose(1, 2) for piece in pieces)
                found.append(mix(*documents).transpose(1, 2).flatten(0, 1))
        return torch.unflatten(torch.cat(found), 0, (len(values[0]), -1)).transpose(1, 2)


def _moved(x: Tensor, rows: int) -> Tensor:
    """x [B, H, T, D], each row taken from so many rows before; zeros where there is none."""
    return x if rows == 0 else functional.pad(x, (0, 0, rows, 0))[:, :, : x.shape[2]]


def _product_type(q: Tensor) -> torch.dtype:
    """Of the products of queries [..., head_dim] with keys.

    PyTorch's kernel for CPUs takes longer over bfloat16 than over float32 where heads are narrow, and is less exact.
    """
    narrow = q.shape[-1] < _NARROW and q.dtype == torch.bfloat16
    return torch.float32 if narrow and q.device.type == "cpu" else q.dtype
