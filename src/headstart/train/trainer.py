"""The training loop of heads on a frozen trunk: batches in order, steps, metrics, a state that resumes bit for bit.

Everything random follows from the seed and the step, so a run that was stopped
and resumed takes the same steps as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.train.heads_loss import DepthSums, HeadsLossConfig, TrainingBatch, heads_loss, learnt_rows
from headstart.train.heads_module import HeadsModule
from headstart.train.means import mean
from headstart.train.optimiser import HeadsOptimiser, schedule
from headstart.train.targets import require_supervision

WEIGHTS, _OPTIMISER = "weights.", "optimiser."
"""What the names of a checkpoint's tensors begin with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """How heads are trained.

    Attributes:
        num_steps: optimiser steps.
        first_depth_steps: of these, the first so many train depth 1 alone. They cost less, and what an unrolled module
            learns there serves it at every depth.
        batch_windows: windows of a step.
        micro_windows: windows that are run at once; gradients of a step are summed over them.
        learning_rate: at its highest.
        weight_decay: of matrices.
        warmup_steps: steps of the rise.
        max_gradient_norm: gradients are scaled down to it.
        seed: of the order of windows.
    """

    num_steps: int
    first_depth_steps: int = 0
    batch_windows: int = 4
    micro_windows: int = 4
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    warmup_steps: int = 30
    max_gradient_norm: float = 1.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthMetrics:
    """One depth of a step or of a validation.

    Attributes:
        correct: share of guesses that equal the trunk's likeliest token.
        acceptance: mean of sum min(trunk, draft).
        loss: mean.
        num_rows: rows that they are means over; if there were none, as at depths that weigh nothing, means are no
            numbers.
    """

    correct: float
    acceptance: float
    loss: float
    num_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMetrics:
    """One step.

    Attributes:
        step: its number, from 1.
        loss: the weighted sum over depths.
        gradient_norm: before it was scaled.
        depths: by depth.
        tokens: tokens of its windows.
        seconds: that it took.
    """

    step: int
    loss: float
    gradient_norm: float
    depths: tuple[DepthMetrics, ...]
    tokens: int
    seconds: float


BatchSource = Callable[[Sequence[int]], TrainingBatch]


class HeadsTrainer:
    """Heads, their optimiser, and where in the run they are.

    Attributes:
        step: steps taken so far.
        config: how they are taken.
    """

    def __init__(
        self,
        heads: HeadsModule,
        trunk_unembedding: Tensor,
        loss: HeadsLossConfig,
        config: TrainerConfig,
        num_windows: int,
        batches: BatchSource,
    ) -> None:
        """Begin at step 0.

        Args:
            heads: initialised.
            trunk_unembedding: bfloat16 or float32 [V, hidden_size] of the draft vocabulary; products run in its type.
            loss: what is made small.
            config: how.
            num_windows: of the training text.
            batches: gives windows by number.
        """
        self.step = 0
        self.config = config
        self._heads, self._unembedding, self._loss = heads, trunk_unembedding, loss
        self._num_windows, self._batches = num_windows, batches
        self._optimiser = HeadsOptimiser(heads.parameters(), config.learning_rate, config.weight_decay)

    def begun_anew(self, config: TrainerConfig) -> HeadsTrainer:
        """The same heads at step 0 of another plan, with a fresh optimiser; restore the weights to begin with."""
        return HeadsTrainer(self._heads, self._unembedding, self._loss, config, self._num_windows, self._batches)

    @property
    def finished(self) -> bool:
        """Whether all steps were taken."""
        return self.step >= self.config.num_steps

    def windows_of(self, step: int) -> list[int]:
        """The windows of a step: each epoch is a permutation of all of them."""
        first = step * self.config.batch_windows
        epochs: dict[int, NDArray[np.intp]] = {}
        chosen = []
        for place in range(first, first + self.config.batch_windows):
            epoch, index = divmod(place, self._num_windows)
            if epoch not in epochs:
                epochs[epoch] = np.random.default_rng((self.config.seed, epoch)).permutation(self._num_windows)
            chosen.append(int(epochs[epoch][index]))
        return chosen

    def take_step(self) -> StepMetrics:
        """One optimiser step.

        Raises:
            ConfigError: the batch has nothing to learn from.
            HeadstartError: the loss or a gradient is not finite; the weights are those before the step.
        """
        started = time.perf_counter()
        config = self.config
        windows = self.windows_of(self.step)
        micro = [
            self._batches(windows[start : start + config.micro_windows])
            for start in range(0, len(windows), config.micro_windows)
        ]
        learnt = [learnt_rows(self._heads.config, batch, 1) for batch in micro]  # deeper ones learn from fewer rows
        require_supervision(torch.cat(learnt), f"step {self.step + 1}")
        loss_config = self._loss
        if self.step < config.first_depth_steps:
            loss_config = replace(loss_config, depth_weights=loss_config.depth_weights[:1])
        counts = self._counts(micro)
        total = 0.0
        sums: list[list[DepthSums]] = []
        for batch in micro:
            loss, found = self._run(batch, loss_config, counts)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            sums.append(found)
        if self.step == config.first_depth_steps:  # the first one of all depths
            self._require_gradients()
        norm = self._clip_gradients()
        if not math.isfinite(total) or not math.isfinite(norm):
            self._clear_gradients()
            raise HeadstartError(
                f"Step {self.step + 1}: the loss is {total} and the gradient's norm {norm}. Training stops before they "
                "reach the weights; begin another run with a lower learning rate."
            )
        self._move(schedule(self.step, config.num_steps, config.warmup_steps))
        self.step += 1
        return StepMetrics(
            step=self.step,
            loss=total,
            gradient_norm=norm,
            depths=_merged(sums),
            tokens=sum(batch.text.tokens.numel() for batch in micro),
            seconds=time.perf_counter() - started,
        )

    @torch.no_grad()
    def validate(self, batches: Sequence[TrainingBatch]) -> tuple[DepthMetrics, ...]:
        """The same figures on text that is not trained on."""
        return _merged([self._run(batch, self._loss, self._counts([batch]))[1] for batch in batches])

    def tensors(self) -> dict[str, Tensor]:
        """Weights and the optimiser's memory, by name, for a checkpoint."""
        weights = {f"{WEIGHTS}{name}": weight.detach() for name, weight in self._heads.own_weights().items()}
        return weights | {f"{_OPTIMISER}{name}": tensor for name, tensor in self._optimiser.tensors().items()}

    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        """Take up what `tensors` gave after `step` steps."""
        self._heads.load_own(under(tensors, WEIGHTS))
        self._optimiser.restore(under(tensors, _OPTIMISER))
        self.step = step

    def _clip_gradients(self) -> float:
        """Scale gradients down to what a step may have; returns their norm before."""
        return float(nn.utils.clip_grad_norm_(self._heads.parameters(), self.config.max_gradient_norm))

    def _clear_gradients(self) -> None:
        self._heads.zero_grad()

    def _move(self, share: float) -> None:
        """Let the optimiser step, at a share of its learning rate."""
        self._optimiser.step(share)

    def _run(
        self, batch: TrainingBatch, loss: HeadsLossConfig, counts: Sequence[int]
    ) -> tuple[Tensor, list[DepthSums]]:
        low_precision = self._unembedding.dtype == torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
            return heads_loss(self._heads, batch, self._unembedding, loss, counts)

    def _counts(self, micro: Sequence[TrainingBatch]) -> list[int]:
        """What the batch's means are over: learnt rows of each depth."""
        return [
            sum(int(learnt_rows(self._heads.config, batch, depth).sum()) for batch in micro)
            for depth in range(1, len(self._loss.depth_weights) + 1)
        ]

    def _require_gradients(self) -> None:
        lacking = [name for name, weight in self._heads.own_weights().items() if weight.grad is None]
        if lacking:
            raise AssertionError(f"trained weights that nothing depends on: {', '.join(lacking)}")


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def state_of(metrics: StepMetrics) -> dict[str, Any]:
    """A step as a line of the metrics file."""
    return {
        "step": metrics.step,
        "loss": metrics.loss,
        "gradient_norm": metrics.gradient_norm,
        "correct": [depth.correct for depth in metrics.depths],
        "acceptance": [depth.acceptance for depth in metrics.depths],
        "tokens_per_s": metrics.tokens / metrics.seconds,
    }


def _merged(sums: Sequence[Sequence[DepthSums]]) -> tuple[DepthMetrics, ...]:
    merged = []
    for parts in zip(*sums, strict=True):
        rows = sum(part.num_rows for part in parts)
        merged.append(
            DepthMetrics(
                correct=mean(sum(part.num_correct for part in parts), rows),
                acceptance=mean(sum(part.acceptance for part in parts), rows),
                loss=mean(sum(part.loss for part in parts), rows),
                num_rows=rows,
            )
        )
    return tuple(merged)
