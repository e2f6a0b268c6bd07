"""Unembedding and loss together, a few rows at a time: [rows of the text, vocabulary] is never held.

The forward pass computes logits, losses *and gradients* of one chunk of rows before it takes the next, so what
waits for the backward pass has the size of the states and of the unembedding, not of the logits. Products run
in the unembedding's type (or autocast's), everything over a vocabulary's softmax in float32.

Rows of weight 0 are not computed at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.errors import ConfigError
from headstart.train.loss_mix import LossMix
from headstart.train.losses import TrunkLogits, evaluate_rows

# [256, 8192] float32 is 8 MiB: some passes over it stay in the cache, and products are long enough to run at full speed
CHUNK_ROWS = 256


class TrunkSource(Protocol):
    """Where the trunk's logits of some rows come from: `TrunkLogits` or `TrunkStates`."""

    def rows(self, index: Tensor) -> TrunkLogits:
        """What the trunk says at rows `index`, int64 [M]."""


@dataclass(frozen=True, slots=True, eq=False)
class TrunkStates:
    """The trunk's side as states, so that its logits too exist for a chunk only.

    Attributes:
        states: [N, H], what the trunk's unembedding reads (after its last norm).
        unembedding: [V, H], the trunk's rows of the draft's V tokens; products run in its type.
        log_normaliser: [N] over the trunk's whole vocabulary, from `log_normaliser`; `None` if V is the whole.
    """

    states: Tensor
    unembedding: Tensor
    log_normaliser: Tensor | None = None

    def rows(self, index: Tensor) -> TrunkLogits:
        """Logits of some rows, computed now."""
        logits = self.states[index].to(self.unembedding.dtype) @ self.unembedding.t()
        return TrunkLogits(logits, None if self.log_normaliser is None else self.log_normaliser[index])


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedLoss:
    """The loss of N rows and, for metrics, what each row did; 0 or false at rows of weight 0.

    Attributes:
        loss: scalar, sum of weight * loss over rows; differentiable (once).
        row_losses: [N], without weights.
        acceptance: [N]; `None` without a trunk.
        correct: bool [N], the draft's likeliest token is the label; `None` without labels.
    """

    loss: Tensor
    row_losses: Tensor
    acceptance: Tensor | None
    correct: Tensor | None


def chunked_loss(
    hidden: Tensor,
    unembedding: Tensor,
    mix: LossMix,
    *,
    row_weights: Tensor,
    trunk: TrunkSource | None = None,
    labels: Tensor | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> ChunkedLoss:
    """The draft's unembedding and a mix of losses over N rows.

    The denominator is the caller's, by way of the weights: 1 / (number of valid targets of this depth, over all
    micro-batches and processes) makes a mean that does not depend on how a batch was cut.

    Args:
        hidden: [N, H], what the unembedding reads.
        unembedding: [V, H] of the draft's vocabulary; its gradient is computed only if it requires one.
        mix: which losses.
        row_weights: [N]; 0 leaves a row out.
        trunk: what the trunk says at the same rows.
        labels: int64 [N], ids of the draft's vocabulary, or `IGNORE_INDEX`. If no term reads them they still
            say what is correct: give the trunk's likeliest tokens to learn how often greedy text is guessed.
        chunk_rows: rows whose logits exist at once.

    Raises:
        ConfigError: a term lacks what it needs, or shapes do not agree.
    """
    if hidden.dim() != 2 or unembedding.dim() != 2 or hidden.shape[1] != unembedding.shape[1]:
        raise ConfigError(
            f"states {list(hidden.shape)} and unembedding {list(unembedding.shape)}: they must be [rows, width] and "
            "[vocabulary, width]. Flatten a batch's windows into rows."
        )
    if row_weights.shape != hidden.shape[:1]:
        raise ConfigError(f"row weights {list(row_weights.shape)} for {hidden.shape[0]} rows: give one for each.")
    if chunk_rows < 1:
        raise ConfigError(f"chunk_rows = {chunk_rows}: it must be at least 1.")
    loss, row_losses, acceptance, correct = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden, unembedding, mix, row_weights, trunk, labels, chunk_rows, torch.is_grad_enabled()
    )
    return ChunkedLoss(loss, row_losses, acceptance, correct)


@torch.no_grad()
def log_normaliser(states: Tensor, unembedding: Tensor, chunk_rows: int = CHUNK_ROWS) -> tuple[Tensor, Tensor]:
    """What a trunk's whole vocabulary adds up to, so that a reduced one can be used later without it.

    Args:
        states: [N, H], what the trunk's unembedding reads.
        unembedding: [V, H], of the whole vocabulary.
        chunk_rows: rows whose logits exist at once.

    Returns:
        log_normaliser: [N], log-sum-exp of each row's logits, in float32 (float64 for float64).
        likeliest: int64 [N], the trunk's likeliest token.
    """
    normalisers, likeliest = [], []
    for rows in torch.split(states, chunk_rows):
        logits = rows.to(unembedding.dtype) @ unembedding.t()
        normalisers.append((logits if logits.dtype == torch.float64 else logits.float()).logsumexp(-1))
        likeliest.append(logits.argmax(-1))
    return torch.cat(normalisers), torch.cat(likeliest)


def _product_dtype(unembedding: Tensor) -> torch.dtype:
    device = unembedding.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else unembedding.dtype


def _chunks(row_weights: Tensor, chunk_rows: int) -> Iterator[Tensor]:
    """Indices of rows that count, int64, a chunk at a time."""
    counted = row_weights.nonzero()[:, 0]
    return iter(torch.split(counted, chunk_rows)) if counted.numel() else iter(())


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        unembedding: Tensor,
        mix: LossMix,
        row_weights: Tensor,
        trunk: TrunkSource | None,
        labels: Tensor | None,
        chunk_rows: int,
        grad_enabled: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        weight = unembedding.to(_product_dtype(unembedding))
        hidden_gradient = torch.zeros_like(hidden) if grad_enabled and ctx.needs_input_grad[0] else None
        # summed over chunks in float32, whatever the products are in
        weight_gradient = (
            torch.zeros_like(unembedding, dtype=dtype) if grad_enabled and ctx.needs_input_grad[1] else None
        )
        wants_gradient = hidden_gradient is not None or weight_gradient is not None
        row_losses = hidden.new_zeros(hidden.shape[0], dtype=dtype)
        acceptance = None if trunk is None else torch.zeros_like(row_losses)
        correct = None if labels is None else torch.zeros_like(row_losses, dtype=torch.bool)

        # the types of products are settled above
        with torch.autocast(hidden.device.type, enabled=False):
            for index in _chunks(row_weights, chunk_rows):
                chunk_hidden = hidden[index].to(weight.dtype)
                rows = evaluate_rows(
                    mix,
                    chunk_hidden @ weight.t(),
                    trunk=None if trunk is None else trunk.rows(index),
                    labels=None if labels is None else labels[index],
                    row_weights=row_weights[index] if wants_gradient else None,
                )
                row_losses[index] = rows.losses
                if acceptance is not None and rows.acceptance is not None:
                    acceptance[index] = rows.acceptance
                if correct is not None and rows.correct is not None:
                    correct[index] = rows.correct
                if rows.gradient is None:
                    continue
                logits_gradient = rows.gradient.to(weight.dtype)
                if hidden_gradient is not None:
                    hidden_gradient[index] = (logits_gradient @ weight).to(hidden.dtype)
                if weight_gradient is not None:
                    weight_gradient += logits_gradient.t() @ chunk_hidden

        ctx.gradients = (hidden_gradient, weight_gradient)
        ctx.weight_dtype = unembedding.dtype
        ctx.mark_non_differentiable(*(t for t in (row_losses, acceptance, correct) if t is not None))
        return (row_losses * row_weights.to(dtype)).sum(), row_losses, acceptance, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_gradient: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were given out already: run its forward pass again")
        hidden_gradient, weight_gradient = ctx.gradients
        # scaled in place and let go: a second unembedding's size would be the largest thing here
        ctx.gradients = None
        if hidden_gradient is not None:
            hidden_gradient.mul_(loss_gradient)
        if weight_gradient is not None:
            weight_gradient = weight_gradient.mul_(loss_gradient).to(ctx.weight_dtype)
        return hidden_gradient, weight_gradient, None, None, None, None, None, None
