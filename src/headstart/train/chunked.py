"""Unembedding and loss together, a few rows at a time: [rows of the text, vocabulary] is never held.

The forward pass computes logits, losses *and gradients* of one chunk of rows before it takes the next, so what
waits for the backward pass has the size of the states and of the unembedding, not of the logits. Products run
in the unembedding's type (or autocast's), everything over a vocabulary's softmax in float32.

Rows of weight 0 are not computed at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.errors import ConfigError
from headstart.train.chunk_size import rows_at_once
from headstart.train.loss_mix import LossMix
from headstart.train.losses import RowLosses, TrunkLogits, evaluate_rows

# tokens among which the likeliest is looked for again where products were rounded
_RECHECKED = 4


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
    chunk_rows: int | None = None,
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
        chunk_rows: rows whose logits exist at once; by default `rows_at_once` of them.

    Raises:
        ConfigError: a term lacks what it needs, or shapes do not agree.
    """
    return chunked_losses(
        [hidden], unembedding, mix, row_weights=[row_weights], trunk=trunk, labels=labels, chunk_rows=chunk_rows
    )[0]


def chunked_losses(
    hiddens: Sequence[Tensor],
    unembedding: Tensor,
    mix: LossMix,
    *,
    row_weights: Sequence[Tensor],
    trunk: TrunkSource | None = None,
    labels: Tensor | None = None,
    chunk_rows: int | None = None,
) -> list[ChunkedLoss]:
    """The same for several guesses at the same N rows, such as the depths of an unrolled head.

    What the trunk says of a chunk is computed once for all of them.

    Args:
        hiddens: of each guess, [N, H].
        row_weights: of each guess, [N].
        unembedding, mix, trunk, labels, chunk_rows: as for `chunked_loss`, shared by all.

    Raises:
        ConfigError: a term lacks what it needs, or shapes do not agree.
    """
    for hidden, weights in zip(hiddens, row_weights, strict=True):
        if hidden.dim() != 2 or unembedding.dim() != 2 or hidden.shape[1] != unembedding.shape[1]:
            raise ConfigError(
                f"states {list(hidden.shape)} and unembedding {list(unembedding.shape)}: they must be [rows, width] "
                "and [vocabulary, width]. Flatten a batch's windows into rows."
            )
        if weights.shape != hidden.shape[:1]:
            raise ConfigError(f"row weights {list(weights.shape)} for {hidden.shape[0]} rows: give one for each.")
    if chunk_rows is None:
        chunk_rows = rows_at_once(len(unembedding))
    if chunk_rows < 1:
        raise ConfigError(f"chunk_rows = {chunk_rows}: it must be at least 1.")
    settings = _Settings(mix, tuple(row_weights), trunk, labels, chunk_rows, torch.is_grad_enabled())
    results = _ChunkedLosses.apply(settings, unembedding, *hiddens)  # type: ignore[no-untyped-call]
    return [ChunkedLoss(*results[start : start + 4]) for start in range(0, len(results), 4)]


@torch.no_grad()
def log_normaliser(states: Tensor, unembedding: Tensor, chunk_rows: int | None = None) -> tuple[Tensor, Tensor]:
    """What a trunk's whole vocabulary adds up to, so that a reduced one can be used later without it.

    Args:
        states: [N, H], what the trunk's unembedding reads.
        unembedding: [V, H], of the whole vocabulary.
        chunk_rows: rows whose logits exist at once; by default `rows_at_once` of them.

    Returns:
        log_normaliser: [N], log-sum-exp of each row's logits, in float32 (float64 for float64).
        likeliest: int64 [N], the trunk's likeliest token.
    """
    normalisers, likeliest = [], []
    for rows in torch.split(states, chunk_rows or rows_at_once(len(unembedding))):
        logits = rows.to(unembedding.dtype) @ unembedding.t()
        normalisers.append((logits if logits.dtype == torch.float64 else logits.float()).logsumexp(-1))
        likeliest.append(_likeliest(rows, unembedding, logits))
    return torch.cat(normalisers), torch.cat(likeliest)


def _likeliest(states: Tensor, unembedding: Tensor, logits: Tensor) -> Tensor:
    """The argmax [M] of logits [M, V] that bfloat16 may have rounded to ties: at 26 it knows eighths only."""
    if logits.dtype != torch.bfloat16:
        return logits.argmax(-1)
    nearest = logits.topk(min(_RECHECKED, logits.shape[1])).indices.sort().values  # a tie goes to the lowest id
    exact = torch.einsum("mh,mch->mc", states.to(unembedding.dtype).float(), unembedding[nearest].float())
    return nearest.gather(1, exact.argmax(-1, keepdim=True))[:, 0]


def _product_dtype(unembedding: Tensor) -> torch.dtype:
    device = unembedding.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else unembedding.dtype


@dataclass(frozen=True, slots=True, eq=False)
class _Settings:
    mix: LossMix
    row_weights: tuple[Tensor, ...]
    trunk: TrunkSource | None
    labels: Tensor | None
    chunk_rows: int
    grad_enabled: bool

    def chunks(self) -> Iterator[Tensor]:
        """Indices of rows that count for some guess, int64, a chunk at a time."""
        counted = torch.stack(self.row_weights).any(0).nonzero()[:, 0]
        return iter(torch.split(counted, self.chunk_rows)) if counted.numel() else iter(())


class _Guess:
    """One guess's sums while chunks go by."""

    def __init__(self, hidden: Tensor, settings: _Settings, wants_gradient: bool) -> None:
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        self.hidden = hidden
        self.gradient = torch.zeros_like(hidden) if wants_gradient else None
        self.row_losses = hidden.new_zeros(hidden.shape[0], dtype=dtype)
        self.acceptance = None if settings.trunk is None else torch.zeros_like(self.row_losses)
        self.correct = None if settings.labels is None else torch.zeros_like(self.row_losses, dtype=torch.bool)

    def take(self, index: Tensor, rows: RowLosses) -> None:
        self.row_losses[index] = rows.losses
        if self.acceptance is not None and rows.acceptance is not None:
            self.acceptance[index] = rows.acceptance
        if self.correct is not None and rows.correct is not None:
            self.correct[index] = rows.correct


class _ChunkedLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: _Settings, unembedding: Tensor, *hiddens: Tensor) -> tuple[Tensor | None, ...]:
        weight = unembedding.to(_product_dtype(unembedding))
        wants = [settings.grad_enabled and needed for needed in ctx.needs_input_grad[1:]]
        guesses = [_Guess(hidden, settings, wanted) for hidden, wanted in zip(hiddens, wants[1:], strict=True)]
        # summed over chunks in float32, whatever the products are in
        weight_gradient = torch.zeros_like(unembedding, dtype=guesses[0].row_losses.dtype) if wants[0] else None

        # the types of products are settled above
        with torch.autocast(unembedding.device.type, enabled=False):
            for index in settings.chunks():
                trunk = None if settings.trunk is None else settings.trunk.rows(index)
                for guess, weights in zip(guesses, settings.row_weights, strict=True):
                    _run_chunk(settings, guess, weights, index, trunk, weight, weight_gradient)

        ctx.gradients = [guess.gradient for guess in guesses], weight_gradient
        ctx.weight_dtype = unembedding.dtype
        results: list[Tensor | None] = []
        for guess, weights in zip(guesses, settings.row_weights, strict=True):
            loss = (guess.row_losses * weights.to(guess.row_losses.dtype)).sum()
            results += [loss, guess.row_losses, guess.acceptance, guess.correct]
        ctx.mark_non_differentiable(*(t for i, t in enumerate(results) if i % 4 and t is not None))
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were given out already: run its forward pass again")
        hidden_gradients, weight_gradient = ctx.gradients
        # scaled in place and let go: a second unembedding's size would be the largest thing here
        ctx.gradients = None
        scales = gradients[::4]
        for hidden_gradient, scale in zip(hidden_gradients, scales, strict=True):
            if hidden_gradient is not None:
                hidden_gradient.mul_(0.0 if scale is None else scale)
        if weight_gradient is not None:
            if len({float(scale) for scale in scales if scale is not None}) > 1 or None in scales:
                raise RuntimeError("losses that share a trained unembedding must be added up, not weighed afterwards")
            weight_gradient = weight_gradient.mul_(scales[0]).to(ctx.weight_dtype)
        return None, weight_gradient, *hidden_gradients


def _run_chunk(
    settings: _Settings,
    guess: _Guess,
    row_weights: Tensor,
    index: Tensor,
    trunk: TrunkLogits | None,
    weight: Tensor,
    weight_gradient: Tensor | None,
) -> None:
    """Some rows of one guess: losses, and their share of the gradients."""
    own = row_weights[index].nonzero()[:, 0]
    if not len(own):
        return
    if len(own) < len(index):
        index, trunk = index[own], None if trunk is None else trunk.rows(own)
    hidden = guess.hidden[index].to(weight.dtype)
    rows = evaluate_rows(
        settings.mix,
        hidden @ weight.t(),
        trunk=trunk,
        labels=None if settings.labels is None else settings.labels[index],
        row_weights=row_weights[index] if guess.gradient is not None or weight_gradient is not None else None,
    )
    guess.take(index, rows)
    if rows.gradient is None:
        return
    logits_gradient = rows.gradient.to(weight.dtype)
    if guess.gradient is not None:
        guess.gradient[index] = (logits_gradient @ weight).to(guess.gradient.dtype)
    if weight_gradient is not None:
        weight_gradient += logits_gradient.t() @ hidden
