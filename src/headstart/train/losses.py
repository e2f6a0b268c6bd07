"""What a draft row loses against its label and against the trunk, with gradients in closed form.

For one row, `draft` and `trunk` being distributions over the draft's vocabulary:

    acceptance  = sum over v of min(draft_v, trunk_v)
    ce          = -log draft_label
    kl          = sum over v of trunk_v * (log trunk_v - log draft_v)
    tv          = 1 - acceptance
    nla         = -log acceptance
    lk          = share * kl + (1 - share) * (1 - acceptance),  share = exp(-3 * acceptance), held constant

All gradients with regard to the draft's logits are sums of four things: the draft's own distribution, the
trunk's, the label's unit vector, and the part of the draft that lies below the trunk. So one pass yields
values and gradients of any mix, and nothing of size [rows, vocabulary] waits for a backward pass.

*Reduced draft vocabulary.* The draft knows only some of the trunk's tokens. Acceptance (so tv, nla and lk's
second part) takes the trunk's true probabilities: its mass outside counts as rejected. KL would be infinite
there, and takes the trunk renormalised inside the draft's vocabulary.

Sources: KL and total variation, Zhou et al. 2310.08461 (DistillSpec); nla and lk, 2602.23881 (LK losses).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.errors import ConfigError
from headstart.train.loss_mix import LossMix
from headstart.train.targets import IGNORE_INDEX

# how fast lk leaves KL for total variation as acceptance rises, as its paper has it
LK_RATE = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class TrunkLogits:
    """What the trunk says, over the draft's vocabulary.

    Attributes:
        logits: float [N, V], the trunk's logits of the draft's V tokens.
        log_normaliser: float [N], log-sum-exp of the trunk's logits over its *whole* vocabulary; `None` if
            the draft's vocabulary is the whole.
    """

    logits: Tensor
    log_normaliser: Tensor | None = None

    def rows(self, index: Tensor) -> TrunkLogits:
        """The same of some rows, int64 [M]."""
        return TrunkLogits(
            self.logits[index],
            None if self.log_normaliser is None else self.log_normaliser[index],
        )


@dataclass(frozen=True, slots=True, eq=False)
class RowLosses:
    """A mix's losses of N rows, in float64 for float64 logits, else in float32; not differentiable.

    Attributes:
        losses: [N]; a row whose label is `IGNORE_INDEX` loses 0 by cross-entropy.
        acceptance: [N], the probability that a token drawn from the draft is kept; `None` without a trunk.
        correct: bool [N], the draft's likeliest token is the label; `None` without labels.
        gradient: [N, V], of the losses weighted by row, with regard to the draft's logits, if asked for.
    """

    losses: Tensor
    acceptance: Tensor | None
    correct: Tensor | None
    gradient: Tensor | None


def draft_losses(
    mix: LossMix, draft_logits: Tensor, *, trunk: TrunkLogits | None = None, labels: Tensor | None = None
) -> Tensor:
    """A mix's loss of each row, differentiable in the draft's logits (once); the trunk is held constant.

    It keeps [N, V] for the backward pass. For much text, see `headstart.train.chunked.chunked_loss`.

    Args:
        mix: which losses.
        draft_logits: float [N, V].
        trunk: what the trunk says at the same rows.
        labels: int64 [N], ids of the draft's vocabulary, or `IGNORE_INDEX`.

    Returns:
        [N], in float64 for float64 logits, else in float32.

    Raises:
        ConfigError: a term lacks what it needs, or shapes do not agree.
    """
    losses: Tensor = _DraftLosses.apply(draft_logits, mix, trunk, labels)  # type: ignore[no-untyped-call]
    return losses


@torch.no_grad()
def evaluate_rows(
    mix: LossMix,
    draft_logits: Tensor,
    *,
    trunk: TrunkLogits | None = None,
    labels: Tensor | None = None,
    row_weights: Tensor | None = None,
) -> RowLosses:
    """Losses, statistics and, if rows have weights, the gradient, in one go.

    Args:
        mix: which losses.
        draft_logits: float [N, V].
        trunk: what the trunk says at the same rows.
        labels: int64 [N], ids of the draft's vocabulary, or `IGNORE_INDEX`.
        row_weights: [N]; the gradient is that of the sum of the losses times these.

    Raises:
        ConfigError: a term lacks what it needs, or shapes do not agree.
    """
    _require_inputs(mix, draft_logits, trunk, labels)
    dtype = torch.float64 if draft_logits.dtype == torch.float64 else torch.float32
    draft_logits = draft_logits.to(dtype)
    draft, draft_normaliser = _softmax(draft_logits)
    losses = torch.zeros_like(draft_normaliser)
    weights = None if row_weights is None else row_weights.to(dtype)
    against_label = None if labels is None else _against_label(mix, draft_logits, draft_normaliser, labels)
    against_trunk = None if trunk is None else _against_trunk(mix, draft_logits, draft, draft_normaliser, trunk)
    if against_label is not None:
        losses += against_label.losses
    if against_trunk is not None:
        losses += against_trunk.losses
    return RowLosses(
        losses=losses,
        acceptance=None if against_trunk is None else against_trunk.acceptance,
        correct=None if against_label is None else against_label.correct,
        # it is written over `draft`, so it comes last
        gradient=None if weights is None else _gradient(mix, draft, against_label, against_trunk, weights),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _AgainstLabel:
    """Cross-entropy of each row [N], and what its gradient needs."""

    losses: Tensor
    correct: Tensor
    index: Tensor  # [N, 1], 0 where there is no label
    factor: Tensor  # [N], 0 where there is no label


def _against_label(mix: LossMix, draft_logits: Tensor, draft_normaliser: Tensor, labels: Tensor) -> _AgainstLabel:
    labelled = labels != IGNORE_INDEX
    index = labels.where(labelled, 0)[:, None]
    factor = mix.ce * labelled.to(draft_normaliser.dtype)
    losses = factor * (draft_normaliser - draft_logits.gather(-1, index)[:, 0])
    return _AgainstLabel(losses, draft_logits.argmax(-1) == labels, index, factor)


@dataclass(frozen=True, slots=True, eq=False)
class _AgainstTrunk:
    """Losses of the terms that read the trunk [N], and the parts of their gradient with a factor for each row."""

    losses: Tensor
    acceptance: Tensor
    trunk: Tensor  # [N, V], renormalised
    trunk_factor: Tensor
    true_trunk: Tensor  # [N, V], with its mass outside the draft's vocabulary missing
    below_factor: Tensor


def _against_trunk(
    mix: LossMix, draft_logits: Tensor, draft: Tensor, draft_normaliser: Tensor, trunk: TrunkLogits
) -> _AgainstTrunk:
    trunk_logits = trunk.logits.to(draft.dtype)
    probabilities, normaliser = _softmax(trunk_logits)
    # logits of both sides are subtracted before they are weighted: log-probabilities need no pass of their own
    divergence = (trunk_logits - draft_logits).mul_(probabilities).sum(-1) + draft_normaliser - normaliser
    true = probabilities
    if trunk.log_normaliser is not None:
        inside = (normaliser - trunk.log_normaliser.to(draft.dtype)).exp().clamp_max(1.0)
        true = probabilities * inside[:, None]
    acceptance = torch.minimum(draft, true).sum(-1)
    share = (-LK_RATE * acceptance).exp()
    variation_factor = mix.tv + mix.lk * (1 - share)
    # two distributions that share nothing in float32 have acceptance 0, whose logarithm would end the run
    positive = acceptance.clamp_min(torch.finfo(draft.dtype).tiny)
    trunk_factor = mix.kl + mix.lk * share
    return _AgainstTrunk(
        losses=trunk_factor * divergence + variation_factor * (1 - acceptance) - mix.nla * positive.log(),
        acceptance=acceptance,
        trunk=probabilities,
        trunk_factor=trunk_factor,
        true_trunk=true,
        below_factor=variation_factor + mix.nla / positive,
    )


def _gradient(
    mix: LossMix,
    draft: Tensor,
    against_label: _AgainstLabel | None,
    against_trunk: _AgainstTrunk | None,
    weights: Tensor,
) -> Tensor:
    """d(sum of weights * losses) / d(draft's logits), [N, V]; it is written over `draft`."""
    draft_factor = torch.zeros_like(weights)
    below = None
    if against_label is not None:
        draft_factor += against_label.factor
    if against_trunk is not None:
        draft_factor += against_trunk.trunk_factor
        if mix.needs_acceptance:
            # where the draft lies below the trunk, acceptance grows with it; where they are equal it is at its best
            # (in place, as a mask of another type would be many times slower)
            below = draft.clone().lt_(against_trunk.true_trunk).mul_(draft)
            draft_factor += against_trunk.below_factor * below.sum(-1)
    gradient = draft.mul_((draft_factor * weights)[:, None])
    if against_label is not None and mix.needs_labels:
        gradient.scatter_add_(-1, against_label.index, -(against_label.factor * weights)[:, None])
    if against_trunk is not None:
        if mix.needs_divergence:
            gradient.addcmul_(against_trunk.trunk, (against_trunk.trunk_factor * weights)[:, None], value=-1)
        if below is not None:
            gradient.addcmul_(below, (against_trunk.below_factor * weights)[:, None], value=-1)
    return gradient


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities [N, V] and the log-normaliser [N], which the largest logit and its probability tell."""
    probabilities = logits.softmax(-1)
    return probabilities, logits.amax(-1) - probabilities.amax(-1).log()


def _require_inputs(mix: LossMix, draft_logits: Tensor, trunk: TrunkLogits | None, labels: Tensor | None) -> None:
    if mix.needs_labels and labels is None:
        raise ConfigError(f"loss {mix}: cross-entropy needs labels. Give labels, or a loss without ce.")
    if mix.needs_trunk and trunk is None:
        raise ConfigError(f"loss {mix}: it compares with the trunk. Give what the trunk says, or the loss ce.")
    if trunk is not None and trunk.logits.shape != draft_logits.shape:
        raise ConfigError(
            f"logits of the draft {list(draft_logits.shape)} and of the trunk {list(trunk.logits.shape)}: "
            "both must be [rows, draft vocabulary]. Take the trunk's unembedding rows of the draft's tokens."
        )
    if labels is not None and labels.shape != draft_logits.shape[:1]:
        raise ConfigError(f"labels {list(labels.shape)} for {draft_logits.shape[0]} rows: give one for each.")


class _DraftLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, draft_logits: Tensor, mix: LossMix, trunk: TrunkLogits | None, labels: Tensor | None
    ) -> Tensor:
        weights = draft_logits.new_ones(draft_logits.shape[0]) if ctx.needs_input_grad[0] else None
        rows = evaluate_rows(mix, draft_logits, trunk=trunk, labels=labels, row_weights=weights)
        ctx.save_for_backward(rows.gradient)
        ctx.logits_dtype = draft_logits.dtype
        return rows.losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, losses_gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * losses_gradient[:, None]).to(ctx.logits_dtype), None, None, None
