"""Steps of a pretraining, and a state that resumes them bit for bit.

What a step trains on and how follows from its number alone; a run that was killed and resumed takes the same steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headstart.train.means import mean
from headstart.train.optimiser import PretrainingOptimiser
from headstart.train.pretrain.batch import LabelledText, count_rows
from headstart.train.pretrain.config import TrainConfig
from headstart.train.pretrain.guard import SpikeGuard
from headstart.train.pretrain.model import PretrainModel
from headstart.train.pretrain.model_config import PretrainHeads
from headstart.train.pretrain.schedules import RateSchedule
from headstart.train.pretrain.team import Team, local_number
from headstart.train.targets import require_supervision

_OPTIMISER, _AVERAGE = "optimiser.", "average."


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadMetrics:
    """What the trunk or one head did, in means over rows.

    Attributes:
        loss: nats; as `correct`, no number if there were no rows.
        correct: share of rows whose likeliest token is the label.
        num_rows: rows that learnt, or were judged.
    """

    loss: float
    correct: float
    num_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMetrics:
    """One step.

    Attributes:
        step: its number, from 1.
        loss: the weighted sum.
        gradient_norm: before it was scaled.
        learning_rate: of the step.
        heads: the trunk first, then depth 1, 2, ... as far as they were trained.
        tokens: tokens of its windows, of all processes.
        seconds: that it took.
        skipped: whether the guard kept it from the weights.
    """

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    heads: tuple[HeadMetrics, ...]
    tokens: int
    seconds: float
    skipped: bool

    def to_json(self) -> dict[str, Any]:
        """As a line of the metrics file, but for the step's number."""
        return {
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "learning_rate": self.learning_rate,
            "losses": [head.loss for head in self.heads],
            "correct": [head.correct for head in self.heads],
            "tokens_per_s": self.tokens / self.seconds,
            "skipped": self.skipped,
        }


class PretrainTrainer:
    """A model, its optimiser, and where in the run they are.

    Attributes:
        step: steps taken so far.
        num_steps: of the run.
        model: as trained; see `weights` for what is written.
    """

    def __init__(
        self,
        model: PretrainModel,
        train: TrainConfig,
        heads: PretrainHeads,
        num_steps: int,
        batches: Callable[[int], LabelledText],
        team: Team,
    ) -> None:
        """Begin at step 0.

        Args:
            model: with its first weights, placed by `team`.
            train: how.
            heads: how they weigh.
            num_steps: of the run.
            batches: gives this process's windows of a step, from 0.
            team: the processes that train it.
        """
        self._team = team
        self.model, self.num_steps, self.step = model, num_steps, 0
        self._train, self._heads, self._batches = train, heads, batches
        self._schedule = RateSchedule(
            shape=train.schedule,
            num_steps=num_steps,
            warmup_steps=round(train.warmup_share * num_steps),
            decay_steps=round(train.decay_share * num_steps),
            final_share=train.final_share,
        )
        self._optimiser = PretrainingOptimiser(model.parameters(), train.learning_rate, train.weight_decay)
        self._checked_depth = -1
        self._guard = SpikeGuard(train.spike_factor, train.max_skipped)
        self._average = {name: weight.detach().clone() for name, weight in model.weights().items()} if train.ema else {}

    def begun_anew(self, num_steps: int) -> PretrainTrainer:
        """The same weights at step 0 of another length, with a fresh optimiser."""
        return PretrainTrainer(self.model, self._train, self._heads, num_steps, self._batches, self._team)

    def time_steps(self, count: int) -> float:
        """Seconds of a step, the median of some that are taken back; all heads are trained in them, and weigh."""
        tensors, progress = self.state()
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        heads = replace(self._heads, curriculum="none", weight="1")
        timed = PretrainTrainer(self.model, self._train, heads, max(count, self.num_steps), self._batches, self._team)
        step_s = statistics.median(timed.take_step().seconds for _ in range(count))
        self.restore(before, progress)
        return step_s

    @property
    def finished(self) -> bool:
        """Whether all steps were taken."""
        return self.step >= self.num_steps

    @property
    def num_skipped(self) -> int:
        """Steps that the guard kept from the weights."""
        return self._guard.num_skipped

    def take_step(self) -> StepMetrics:
        """One optimiser step, or none if the guard refuses it; either way the run goes on to the next batch.

        Raises:
            ConfigError: the batch has nothing to learn from.
            HeadstartError: too many steps in a row had to be skipped.
        """
        started = time.perf_counter()
        batch = self._batches(self.step)
        weights = self._heads.weights_at(self.step, self.num_steps)
        num_rows = self._total_rows(batch, len(weights))
        losses, correct, total = self._accumulate(batch, weights, num_rows)
        if len(weights) != self._checked_depth:
            self._require_gradients(len(weights))
            self._checked_depth = len(weights)
        norm = local_number(nn.utils.clip_grad_norm_(self.model.parameters(), self._train.max_gradient_norm))
        passes = self._guard.passes(self.step + 1, total, norm, weights)
        share = self._schedule.share(self.step)
        if passes:
            self._optimiser.step(share)
            self._follow_average()
        else:
            self.model.zero_grad(set_to_none=True)
        self.step += 1
        # rows of depths that weigh nothing are not computed
        learnt = [count if weight else 0 for count, weight in zip(num_rows, (1.0, *weights), strict=True)]
        return StepMetrics(
            step=self.step,
            loss=total,
            gradient_norm=norm,
            learning_rate=self._train.learning_rate * share,
            heads=head_metrics(losses, correct, learnt),
            tokens=batch.text.tokens.numel() * self._team.size,
            seconds=time.perf_counter() - started,
            skipped=not passes,
        )

    def _total_rows(self, batch: LabelledText, depth: int) -> list[int]:
        own = torch.tensor(count_rows(self.model.heads_config, batch, depth))
        counts: list[int] = self._team.sum(own).tolist()
        require_supervision(torch.tensor(counts[:1]) > 0, f"step {self.step + 1}")
        return counts

    def _accumulate(
        self, batch: LabelledText, weights: Sequence[float], num_rows: Sequence[int]
    ) -> tuple[Tensor, Tensor, float]:
        """Gradients of a step, summed over micro-batches and processes; and their sums, and the loss."""
        parts: list[Tensor] = []
        for micro in batch.split(self._train.windows_at_once):
            with self.autocast():
                found = self.model(micro, weights, num_rows)
            (found.loss * self._team.loss_factor).backward()
            parts.append(torch.cat([found.loss.detach()[None], found.losses, found.correct]).double())
        total, losses, correct = torch.split(self._team.sum(torch.stack(parts).sum(0)).cpu(), [1, *[len(num_rows)] * 2])
        return losses, correct, float(total)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of products."""
        if self._train.precision == "float32":
            return nullcontext()
        return torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16)

    def _require_gradients(self, depth: int) -> None:
        """No weight that is trained now may be one that nothing depends on."""
        active = min(depth, self._heads.num_modules)
        trained = ("trunk.", *(f"heads.modules.{module}." for module in range(active)))
        weights = self.model.weights().items()
        lacking = [name for name, weight in weights if weight.grad is None and name.startswith(trained)]
        if lacking:
            raise AssertionError(f"trained weights that nothing depends on: {', '.join(lacking)}")

    @torch.no_grad()
    def _follow_average(self) -> None:
        if self._average:
            now = [weight.detach() for weight in self.model.weights().values()]
            # an average of few steps looks back less far, or it would keep the random start
            decay = min(self._train.ema, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(list(self._average.values()), now, 1 - decay)

    def weights(self) -> dict[str, Tensor]:
        """What is written and judged: the weights, or their moving average."""
        return self._average or {name: weight.detach() for name, weight in self.model.weights().items()}

    @contextmanager
    def judged_weights(self) -> Iterator[None]:
        """For passes without gradients: the model has the weights that are written, and those trained after it."""
        trained: dict[str, Tensor] = {}
        if self._average:
            trained = {name: weight.detach().clone() for name, weight in self.model.weights().items()}
            self._take(self._average)
        try:
            yield
        finally:
            self._team.settle(self.model)
            if trained:
                self._take(trained)

    @torch.no_grad()
    def _take(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self.model.weights().items():
            weight.copy_(values[name])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and all memory, for a checkpoint: tensors by name, and plain data."""
        tensors = {name: weight.detach() for name, weight in self.model.weights().items()}
        tensors |= {f"{_OPTIMISER}{name}": tensor for name, tensor in self._optimiser.tensors().items()}
        tensors |= {f"{_AVERAGE}{name}": tensor for name, tensor in self._average.items()}
        return tensors, {"step": self.step, "guard": self._guard.state()}

    def like(self, name: str) -> Tensor:
        """A tensor of the shape and place of one in `state`, for what was saved to be read into."""
        weights: Mapping[str, Tensor] = self.model.weights()
        if name.startswith(_OPTIMISER):
            return self._optimiser.like(name.removeprefix(_OPTIMISER))
        return torch.zeros_like(weights[name.removeprefix(_AVERAGE)].detach())

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._take(tensors)
        for name, average in self._average.items():
            average.copy_(tensors[f"{_AVERAGE}{name}"])
        memory = {n.removeprefix(_OPTIMISER): t for n, t in tensors.items() if n.startswith(_OPTIMISER)}
        self._optimiser.restore(memory)
        self._guard.restore(progress["guard"])
        self.step = progress["step"]


def head_metrics(losses: Tensor, correct: Tensor, num_rows: Sequence[int]) -> tuple[HeadMetrics, ...]:
    """Means of the trunk and all depths, from sums [1 + depths] and rows."""
    return tuple(
        HeadMetrics(loss=mean(loss, count), correct=mean(right, count), num_rows=count)
        for loss, right, count in zip(losses.tolist(), correct.tolist(), num_rows, strict=True)
    )
