"""The loss of trunk and heads together.

    own  = mean over tokens of [KL(trunk as it was || trunk) + label_weight * cross-entropy]
    loss = own + heads_weight * heads' loss

The trunk as it was is given by its last states, which a frozen graft has on disk, and its unembedding. The heads'
targets are the trunk as it is, held constant: heads learn to guess it, and the trunk learns to be read. So gradients of
the heads' loss reach the trunk through its taps alone; what heads borrow (embedding, final norm, unembedding) is
constant to them, as in a frozen graft.

Source: Cai et al. 2401.10774, section 2.2.2 (joint loss) and 2.3.2 (the trunk's own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headstart.train.chunked import TrunkStates, chunked_loss, log_normaliser
from headstart.train.heads_loss import DepthSums, HeadsLossConfig, TrainingBatch, heads_loss
from headstart.train.heads_module import HeadsModule
from headstart.train.loss_mix import LossMix
from headstart.train.targets import future_targets
from headstart.train.trunk_module import TrunkModule


def joint_loss(
    trunk: TrunkModule,
    heads: HeadsModule,
    batch: TrainingBatch,
    frozen_unembedding: Tensor,
    loss: HeadsLossConfig,
    *,
    heads_weight: float,
    label_weight: float,
    num_rows: Sequence[int],
    num_tokens: int,
) -> tuple[Tensor, list[DepthSums]]:
    """The loss of one micro-batch.

    Args:
        trunk: gives the taps of the heads.
        heads: over this trunk, whose weights they borrow.
        batch: windows with what the trunk said of them *before* it was trained.
        frozen_unembedding: [vocab_size, hidden_size], of that trunk; products run in its type.
        loss: of the heads.
        heads_weight: of the heads' loss.
        label_weight: of the cross-entropy in the trunk's own loss.
        num_rows: learnt rows of each depth over the whole batch.
        num_tokens: tokens over the whole batch.

    Returns:
        The loss, and what the heads did at each depth.
    """
    said = trunk(batch.text)
    assert said.taps is not None, "heads read something"
    own = _own_loss(said.states, trunk.unembedding, batch, frozen_unembedding, label_weight, num_tokens)
    # in the type of the products, a copy for each micro-batch and gone with it
    unembedding = trunk.unembedding.detach().to(frozen_unembedding.dtype)
    states = said.states.detach()
    normaliser, likeliest = log_normaliser(states.flatten(0, 1), unembedding)
    shape = states.shape[:2]
    seen = replace(
        batch,
        taps=said.taps,
        trunk_states=states,
        log_normaliser=torch.unflatten(normaliser, 0, shape),
        likeliest=torch.unflatten(likeliest, 0, shape),
    )
    guessed = unembedding if heads.vocabulary is None else unembedding[heads.vocabulary]
    heads_part, sums = heads_loss(heads, seen, guessed, loss, num_rows)
    return own + heads_weight * heads_part, sums


@torch.no_grad()
def drift(trunk: TrunkModule, batches: Sequence[TrainingBatch], frozen_unembedding: Tensor) -> float:
    """KL(trunk as it was || trunk as a file in bfloat16 holds it), mean over the tokens of some text, in nats.

    Args:
        trunk: trained.
        batches: with what the trunk said before; none that it was trained on.
        frozen_unembedding: of the trunk before; products run in its type.
    """
    weights = {name: weight.to(trunk.unembedding.dtype) for name, weight in trunk.rounded().items()}
    unembedding = weights["embedding" if trunk.config.tied else "unembedding"].to(frozen_unembedding.dtype)
    num_tokens = sum(count_tokens(batch) for batch in batches)
    total = 0.0
    for batch in batches:
        with product_precision(frozen_unembedding):
            said = trunk(batch.text, weights)
        total += float(_own_loss(said.states, unembedding, batch, frozen_unembedding, 0.0, num_tokens))
    return total


def count_tokens(batch: TrainingBatch) -> int:
    """Tokens of a batch, padding not counted."""
    return int((batch.text.documents >= 0).sum())


def product_precision(frozen_unembedding: Tensor) -> torch.autocast:
    """The type that products run in: bfloat16 if the frozen unembedding has it, else that of the weights."""
    return torch.autocast("cpu", torch.bfloat16, enabled=frozen_unembedding.dtype == torch.bfloat16)


def _own_loss(
    states: Tensor,
    unembedding: Tensor,
    batch: TrainingBatch,
    frozen_unembedding: Tensor,
    label_weight: float,
    num_tokens: int,
) -> Tensor:
    """The trunk's own loss: of all tokens, and of the supervised ones as labels."""
    text = batch.text
    labels = None
    if label_weight:
        labels = future_targets(text.tokens, text.documents, batch.supervised, 1)[0].flatten()
    return chunked_loss(
        states.flatten(0, 1),
        unembedding,
        LossMix(kl=1.0, ce=label_weight),
        row_weights=(text.documents >= 0).flatten() / max(num_tokens, 1),
        trunk=TrunkStates(batch.trunk_states.flatten(0, 1), frozen_unembedding),
        labels=labels,
    ).loss
