"""The training loop of heads and their trunk together: that of heads alone, with a second set of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headstart.train.heads_loss import DepthSums, HeadsLossConfig, TrainingBatch
from headstart.train.heads_module import HeadsModule
from headstart.train.joint_config import JointConfig
from headstart.train.joint_loss import count_tokens, joint_loss, product_precision
from headstart.train.optimiser import TrunkOptimiser
from headstart.train.trainer import BatchSource, HeadsTrainer, TrainerConfig, under
from headstart.train.trunk_module import TrunkModule

_TRUNK, _TRUNK_OPTIMISER = "trunk.", "trunk_optimiser."


class JointTrainer(HeadsTrainer):
    """Heads, trunk, their optimisers, and where in the run they are."""

    def __init__(
        self,
        heads: HeadsModule,
        trunk: TrunkModule,
        frozen_unembedding: Tensor,
        loss: HeadsLossConfig,
        joint: JointConfig,
        config: TrainerConfig,
        num_windows: int,
        batches: BatchSource,
    ) -> None:
        """Begin at step 0.

        Args:
            heads: over the weights of `trunk`.
            trunk: trained with them.
            frozen_unembedding: [vocab_size, hidden_size], of the trunk before; products run in its type.
            loss: of the heads.
            joint: how the trunk is trained.
            config: how the heads are.
            num_windows: of the training text.
            batches: gives windows by number, with what the trunk said of them before.
        """
        super().__init__(heads, frozen_unembedding, loss, config, num_windows, batches)
        self._trunk, self._joint = trunk, joint
        self._trunk_optimiser = TrunkOptimiser(trunk.parameters(), joint.trunk_learning_rate)

    def begun_anew(self, config: TrainerConfig) -> JointTrainer:
        """The same weights at step 0 of another plan, with fresh optimisers; restore the weights to begin with."""
        return JointTrainer(
            self._heads,
            self._trunk,
            self._unembedding,
            self._loss,
            self._joint,
            config,
            self._num_windows,
            self._batches,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All weights and the optimisers' memory, by name, for a checkpoint."""
        weights = {f"{_TRUNK}{name}": weight.detach() for name, weight in self._trunk.weights().items()}
        memory = {f"{_TRUNK_OPTIMISER}{name}": tensor for name, tensor in self._trunk_optimiser.tensors().items()}
        return super().tensors() | weights | memory

    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        """Take up what `tensors` gave after `step` steps."""
        super().restore(tensors, step)
        trunk = under(tensors, _TRUNK)
        with torch.no_grad():
            for name, weight in self._trunk.weights().items():
                weight.copy_(trunk[name])
        self._trunk_optimiser.restore(under(tensors, _TRUNK_OPTIMISER))
        self._heads.borrow()

    def _clip_gradients(self) -> float:
        # each side by itself, as the trunk's gradients are of another size; the heads' as if their loss stood alone
        limit = self.config.max_gradient_norm
        heads = nn.utils.clip_grad_norm_(self._heads.parameters(), limit * self._joint.heads_weight)
        trunk = nn.utils.clip_grad_norm_(self._trunk.parameters(), limit)
        return math.hypot(float(heads), float(trunk))

    def _clear_gradients(self) -> None:
        super()._clear_gradients()
        self._trunk.zero_grad()

    def _move(self, share: float) -> None:
        super()._move(share)
        self._trunk_optimiser.step(share)
        self._heads.borrow()

    def _counts(self, micro: Sequence[TrainingBatch]) -> list[int]:
        """Learnt rows of each depth, and last the tokens that the trunk's own loss is a mean over."""
        return [*super()._counts(micro), sum(count_tokens(batch) for batch in micro)]

    def _run(
        self, batch: TrainingBatch, loss: HeadsLossConfig, counts: Sequence[int]
    ) -> tuple[Tensor, list[DepthSums]]:
        *num_rows, num_tokens = counts
        with product_precision(self._unembedding):
            return joint_loss(
                self._trunk,
                self._heads,
                batch,
                self._unembedding,
                loss,
                heads_weight=self._joint.heads_weight,
                label_weight=self._joint.label_weight,
                num_rows=num_rows,
                num_tokens=num_tokens,
            )
