"""The loss of heads over a batch of windows: depth by depth, against the trunk's own view.

Row t of depth j guesses the token at t + offset. What the trunk says of that
token stands at row t + offset - 1, whose last state is among the taps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from headstart.architectures.heads import HeadsConfig
from headstart.runtime.torch_runtime import TextBatch
from headstart.train.chunked import TrunkStates, chunked_losses
from headstart.train.head_by_head import HeadLoss, head_by_head
from headstart.train.heads_module import DepthOutput, HeadsModule, chain_rows, guess_offset
from headstart.train.loss_mix import LossMix
from headstart.train.targets import IGNORE_INDEX, future_targets


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """Windows with what the trunk says of them.

    Attributes:
        text: the tokens.
        supervised: bool [B, T], tokens to be learnt.
        taps: [B, T, taps * hidden_size], what the heads read.
        trunk_states: [B, T, hidden_size], past the trunk's final norm.
        log_normaliser: float32 [B, T], over the trunk's whole vocabulary.
        likeliest: int64 [B, T], the trunk's likeliest next token.
    """

    text: TextBatch
    supervised: Tensor
    taps: Tensor
    trunk_states: Tensor
    log_normaliser: Tensor
    likeliest: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DepthSums:
    """What happened at one depth of a batch, in sums over rows.

    Attributes:
        num_rows: rows that were learnt from.
        num_correct: guesses that equal the trunk's likeliest token.
        acceptance: of their distribution, sum of min(trunk, draft).
        loss: sum without weights.
    """

    num_rows: int
    num_correct: int
    acceptance: float
    loss: float


@dataclass(frozen=True, slots=True)
class HeadsLossConfig:
    """How depths and terms weigh.

    Attributes:
        mix: terms of a row; the label of cross-entropy is the trunk's likeliest token, whatever the text drew.
        depth_weights: of depth 1, 2, ...
        feature_weight: of the regression on the trunk's next state (EAGLE-1), on top of the mix.
    """

    mix: LossMix
    depth_weights: Sequence[float]
    feature_weight: float = 0.0


def learnt_rows(config: HeadsConfig, batch: TrainingBatch, depth: int) -> Tensor:
    """bool [B, T]: rows of a depth whose chain lies in their document and whose target is supervised."""
    text = batch.text
    _, valid = future_targets(text.tokens, text.documents, batch.supervised, guess_offset(config, depth))
    return valid & chain_rows(config, text, depth)


def heads_loss(
    heads: HeadsModule,
    batch: TrainingBatch,
    trunk_unembedding: Tensor,
    config: HeadsLossConfig,
    num_rows: Sequence[int],
) -> tuple[Tensor, list[DepthSums]]:
    """The loss of one micro-batch.

    Heads that do not see each other are turned back one by one, so that memory is that of one of them.

    Args:
        heads: run to the depth that `depth_weights` has.
        batch: the windows.
        trunk_unembedding: [V, hidden_size], the trunk's rows of the draft vocabulary.
        config: how depths and terms weigh.
        num_rows: learnt rows of each depth over the *whole* batch, all micro-batches and processes: the
            denominators, so that a gradient does not depend on how a batch was cut.

    Returns:
        The loss, and each depth's sums.
    """
    depth = len(config.depth_weights)
    if heads.config.recurrent:
        # a row of any depth guesses the same token, so all share what the trunk says of it
        outputs = list(heads(batch.text, batch.taps, depth))
        losses, sums = zip(*_losses(heads, batch, trunk_unembedding, config, outputs, num_rows), strict=True)
        return torch.stack(losses).sum(), list(sums)
    found: dict[int, DepthSums] = {}

    def loss_of(level: int) -> HeadLoss:
        def loss(taps: Tensor) -> Tensor:
            output = heads.alone(batch.text, taps, level)
            ((own, found[level]),) = _losses(heads, batch, trunk_unembedding, config, [output], num_rows)
            return own

        return loss

    levels = range(1, depth + 1)
    total = head_by_head(batch.taps, [loss_of(level) for level in levels], list(heads.own_weights().values()))
    return total, [found[level] for level in levels]


def _losses(
    heads: HeadsModule,
    batch: TrainingBatch,
    trunk_unembedding: Tensor,
    config: HeadsLossConfig,
    group: Sequence[DepthOutput],
    num_rows: Sequence[int],
) -> Iterator[tuple[Tensor, DepthSums]]:
    """Of depths whose row t guesses the token at the same offset; the first has all rows that any has."""
    masks = [learnt_rows(heads.config, batch, output.depth) for output in group]
    where = masks[0].flatten().nonzero()[:, 0]
    at = where + group[0].offset - 1  # where the trunk says what the row guesses; in the window, since rows are valid
    states = batch.trunk_states.flatten(0, 1)[at]
    scales = [config.depth_weights[output.depth - 1] / max(num_rows[output.depth - 1], 1) for output in group]
    row_weights = [mask.flatten()[where] * scale for mask, scale in zip(masks, scales, strict=True)]
    losses = chunked_losses(
        [output.hidden.flatten(0, 1)[where] for output in group],
        group[0].unembedding,
        config.mix,
        row_weights=row_weights,
        trunk=TrunkStates(
            states, trunk_unembedding, None if heads.vocabulary is None else batch.log_normaliser.flatten()[at]
        ),
        labels=_draft_ids(heads.vocabulary, batch.likeliest.flatten()[at]),
    )
    for output, found, weights in zip(group, losses, row_weights, strict=True):
        loss = found.loss
        if config.feature_weight and output.features is not None:
            features = output.features.flatten(0, 1)[where].float()
            error = functional.smooth_l1_loss(features, states.float(), reduction="none").mean(1)
            loss = loss + config.feature_weight * (error * weights).sum()
        assert found.correct is not None
        assert found.acceptance is not None
        yield (
            loss,
            DepthSums(
                num_rows=int((weights > 0).sum()),
                num_correct=int(found.correct.sum()),
                acceptance=float(found.acceptance.sum()),
                loss=float(found.row_losses.sum()),
            ),
        )


def _draft_ids(vocabulary: Tensor | None, token_ids: Tensor) -> Tensor:
    """The trunk's ids as ids of the draft vocabulary; `IGNORE_INDEX` for those outside."""
    if vocabulary is None:
        return token_ids
    index = torch.searchsorted(vocabulary, token_ids).clamp_max(len(vocabulary) - 1)
    return index.where(vocabulary[index] == token_ids, IGNORE_INDEX)
