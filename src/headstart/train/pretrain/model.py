"""A trunk with its heads, and the loss of both on the text's own tokens, in one forward pass.

    loss = mean CE of the trunk + sum over depths k of weight_k * mean CE of head k

Heads teach the trunk here: gradients of their losses reach its blocks through the states that they read, and its
embedding and unembedding through the loans that they make of them. Nothing of size [tokens, vocabulary] exists at any
time (`headstart.train.chunked`). Parallel heads are turned back one by one (`headstart.train.head_by_head`); modules in
sequence share labels with the trunk, so that all of them go through the unembedding together.

Source: Gloeckle et al. 2404.19737, section 2; DeepSeek-AI 2412.19437, section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart.architectures.heads import HeadsConfig
from headstart.train.chunked import ChunkedLoss, chunked_loss, chunked_losses
from headstart.train.head_by_head import head_by_head
from headstart.train.heads_module import HeadsModule
from headstart.train.loss_mix import LossMix
from headstart.train.pretrain.batch import LabelledText, labels
from headstart.train.trunk_module import TrunkModule, TrunkOutput

_CROSS_ENTROPY = LossMix(ce=1.0)


@dataclass(frozen=True, slots=True, eq=False)
class LabelLoss:
    """What a forward pass gives.

    Attributes:
        loss: scalar, the weighted sum.
        losses: [1 + depths], the sum over rows of the trunk's and each head's loss, without weights; no gradient.
        correct: [1 + depths], rows whose likeliest token is the label.
    """

    loss: Tensor
    losses: Tensor
    correct: Tensor


class PretrainModel(nn.Module):
    """A trunk and perhaps heads over it.

    Attributes:
        trunk: the next-token model, which stands alone as well.
        heads: of a kind without a draft vocabulary, or `None`.
    """

    def __init__(self, trunk: TrunkModule, heads: HeadsModule | None) -> None:
        """Take both; `heads` is made without the trunk's weights, which every pass hands to it."""
        super().__init__()
        self.trunk, self.heads = trunk, heads

    @property
    def heads_config(self) -> HeadsConfig | None:
        """Of the heads, if there are any."""
        return None if self.heads is None else self.heads.config

    def weights(self) -> dict[str, nn.Parameter]:
        """All trained weights, by "trunk." or "heads." and the names of their programs."""
        found = {f"trunk.{name}": weight for name, weight in self.trunk.weights().items()}
        if self.heads is not None:
            found |= {f"heads.{name}": weight for name, weight in self.heads.own_weights().items()}
        return found

    def forward(self, batch: LabelledText, weights: Sequence[float], num_rows: Sequence[int]) -> LabelLoss:
        """The loss of a micro-batch.

        Args:
            batch: windows.
            weights: of depth 1, 2, ...; as many depths are run.
            num_rows: rows that learn at depth 0, 1, ... over the *whole* batch, all micro-batches and processes; the
                gradient then does not depend on how a batch was cut.
        """
        said = self.trunk(batch.text)
        scales = [weight / max(count, 1) for weight, count in zip((1.0, *weights), num_rows, strict=True)]
        if self.heads is None or not weights:
            return _gathered([self._loss(batch, 0, scales[0], said.states, self.trunk.unembedding)])
        if self.heads.config.recurrent:
            return self._in_sequence(self.heads, batch, said, scales)
        return self._in_parallel(self.heads, batch, said, scales)

    def _loss(self, batch: LabelledText, depth: int, scale: float, hidden: Tensor, unembedding: Tensor) -> ChunkedLoss:
        targets, learns = labels(self.heads_config, batch, depth)
        weights = _weighed(learns, scale)
        return chunked_loss(
            hidden.flatten(0, 1), unembedding, _CROSS_ENTROPY, row_weights=weights, labels=targets.flatten()
        )

    def _in_sequence(
        self, heads: HeadsModule, batch: LabelledText, said: TrunkOutput, scales: Sequence[float]
    ) -> LabelLoss:
        """Row t of every depth predicts the token after it, as the trunk's does."""
        assert said.taps is not None
        outputs = heads(batch.text, said.taps, len(scales) - 1, self.trunk.weights())
        hiddens = [said.states, *(output.hidden for output in outputs)]
        rows = [labels(heads.config, batch, depth) for depth in range(len(scales))]
        return _gathered(
            chunked_losses(
                [hidden.flatten(0, 1) for hidden in hiddens],
                self.trunk.unembedding,
                _CROSS_ENTROPY,
                row_weights=[_weighed(learns, scale) for (_, learns), scale in zip(rows, scales, strict=True)],
                labels=rows[0][0].flatten(),  # deeper rows that learn are some of these, with the same labels
            )
        )

    def _in_parallel(
        self, heads: HeadsModule, batch: LabelledText, said: TrunkOutput, scales: Sequence[float]
    ) -> LabelLoss:
        assert said.taps is not None
        trunk_weights = self.trunk.weights()
        width = self.trunk.config.hidden_size
        found: dict[int, ChunkedLoss] = {}

        def loss_of(depth: int) -> Callable[[Tensor], Tensor]:
            def loss(states: Tensor) -> Tensor:
                if depth == 0:
                    found[0] = self._loss(batch, 0, scales[0], states[..., :width], self.trunk.unembedding)
                else:
                    output = heads.alone(batch.text, states[..., width:], depth, trunk_weights)
                    found[depth] = self._loss(batch, depth, scales[depth], output.hidden, output.unembedding)
                return found[depth].loss

            return loss

        # what the trunk's own unembedding reads, and what the heads do: both are turned back at the end, together
        states = torch.cat([said.states, said.taps], 2)
        shared = {id(weight): weight for weight in (*heads.borrowed_of(trunk_weights).values(), self.trunk.unembedding)}
        losses = [loss_of(depth) for depth in range(len(scales))]
        loss = head_by_head(states, losses, [*heads.own_weights().values(), *shared.values()])
        return _gathered([found[depth] for depth in range(len(scales))], loss)


def _weighed(learns: Tensor, scale: float) -> Tensor:
    """A weight for each row, flat; rows of weight 0 are not computed."""
    return learns.flatten().double() * scale


def _gathered(parts: Sequence[ChunkedLoss], loss: Tensor | None = None) -> LabelLoss:
    """The sums of all depths, and their loss unless it is known already."""
    if loss is None:
        loss = parts[0].loss
        for part in parts[1:]:
            loss = loss + part.loss
    losses = torch.stack([part.row_losses.sum() for part in parts])
    correct = torch.stack([part.correct.sum() for part in parts if part.correct is not None])
    return LabelLoss(loss, losses, correct)
