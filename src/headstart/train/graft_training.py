"""The training phase of a graft: how many steps, when heads are measured, and what is kept.

    steps   0 ....... every ....... 2 every ....... num_steps
            measured  measured      measured        measured; the best so far are written

The state is saved at each measurement, some minutes apart, and when the run is stopped.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.train.graft_config import GraftConfig
from headstart.train.heads_loss import TrainingBatch
from headstart.train.heads_module import HeadsModule
from headstart.train.means import spoken
from headstart.train.measured import MeasuredAcceptance
from headstart.train.phases import Reporter, StoppedError
from headstart.train.plot import plot_run
from headstart.train.run_clock import RunClock
from headstart.train.run_directory import RunDirectory
from headstart.train.trainer import HeadsTrainer, StepMetrics, state_of

PLOT_NAME = "plot.svg"

# steps whose speed says how many more the time allows
_TIMED_STEPS = 8
# of the time for training: what measuring may take
_MEASURING_SHARE = 0.15
# what a power cut may lose
_SAVE_EVERY_S = 300.0
# steps of the learning rate's rise: at most, and of all
_WARMUP_STEPS, _WARMUP_SHARE = 30, 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How long a run trains; fixed once, so that a run that is taken up takes the same steps.

    Attributes:
        num_steps: of the optimiser.
        measure_every: steps from one measurement to the next; there is one at the end as well.
    """

    num_steps: int
    measure_every: int


WriteHeads = Callable[[dict[str, NDArray[np.float32]], MeasuredAcceptance, int, Plan], None]
"""Told of the best heads so far: their weights, what they reached, after which step, and of which plan."""


class Meter(Protocol):
    """Whatever measures acceptance, such as an `AcceptanceMeter`."""

    def measure(self, weights: Mapping[str, NDArray[np.float32]]) -> MeasuredAcceptance:
        """What heads of these weights reach."""


class GraftTraining:
    """Trains heads in a run's folder, or goes on with it."""

    def __init__(
        self,
        run: RunDirectory,
        config: GraftConfig,
        heads: HeadsModule,
        trainer: HeadsTrainer,
        num_windows: int,
        validation: Sequence[TrainingBatch],
        meter: Meter,
        clock: RunClock,
        report: Reporter,
        write_heads: WriteHeads,
        before_measuring: Callable[[int], None] = lambda step: None,
    ) -> None:
        """Take the parts.

        Args:
            run: the folder.
            config: of the graft.
            heads: initialised.
            trainer: of these, at step 0; its plan is replaced.
            num_windows: of the training text.
            validation: text that is not trained on.
            meter: measures acceptance.
            clock: limits the steps, if it has a limit.
            report: told of each step.
            write_heads: told of the best heads so far.
            before_measuring: told of the step after which heads are about to be measured; what it raises ends the run
                with the best heads as they were.
        """
        self._run, self._config, self._heads, self._trainer = run, config, heads, trainer
        self._num_windows, self._validation, self._meter = num_windows, validation, meter
        self._clock, self._report, self._write_heads = clock, report, write_heads
        self._before_measuring = before_measuring
        self._best = 0.0
        self._saved = time.monotonic()

    def train(self) -> Plan:
        """Take all steps that are left.

        Raises:
            StoppedError: the run is to stop; its state is saved.
            HeadstartError: training diverged.
        """
        plan = self._resume()
        trainer = self._trainer
        try:
            while not trainer.finished:
                metrics = trainer.take_step()
                self._run.log(kind="step", **state_of(metrics))
                if trainer.step % plan.measure_every == 0 or trainer.finished:
                    self._assess(plan)
                elif time.monotonic() - self._saved > _SAVE_EVERY_S:
                    self._save()
                self._report.tell("training", trainer.step, plan.num_steps, self._note(metrics))
        except StoppedError:
            self._save()
            raise
        return plan

    def _resume(self) -> Plan:
        """Take up what is saved and planned; measure and plan what is not."""
        saved = self._run.load()
        known = self._run.recall("plan")
        plan = None if known is None else Plan(**known)
        if saved is None:
            self._report.tell("training", 0, 1, "measuring what the heads begin with")  # a time without other news
            plan = plan or self._make_plan()
            self._run.remember("plan", asdict(plan))
            self._follow(plan)
            self._run.forget_after(-1)  # a first measurement that was not saved is made again
            self._assess(plan)
            return plan
        if plan is None:
            raise self._run.damaged("plan")
        tensors, progress = saved
        self._follow(plan)
        self._trainer.restore(tensors, progress["step"])
        self._best = progress["best"]
        self._run.forget_after(self._trainer.step)
        return plan

    def _follow(self, plan: Plan) -> None:
        settings = replace(
            self._trainer.config,
            num_steps=plan.num_steps,
            first_depth_steps=int(self._config.first_depth_share * plan.num_steps),
            warmup_steps=min(_WARMUP_STEPS, max(1, round(_WARMUP_SHARE * plan.num_steps))),
        )
        self._trainer = self._trainer.begun_anew(settings)

    def _make_plan(self) -> Plan:
        """As many steps as were asked for; with a time limit, at most as many as fit into what is left of it."""
        num_steps = self._config.num_steps(self._num_windows)
        num_measured = self._config.checkpoints
        if self._clock.left_s <= 0:
            return Plan(num_steps=1, measure_every=1)
        if self._clock.limit_s is not None:
            measure_s, step_s = self._try_out()
            left = self._clock.left_s - measure_s  # there is one at the beginning as well
            num_measured = max(1, min(num_measured, int(_MEASURING_SHARE * left / measure_s)))
            num_steps = max(1, min(num_steps, int((left - num_measured * measure_s) / step_s)))
        return Plan(num_steps=num_steps, measure_every=math.ceil(num_steps / num_measured))

    def _try_out(self) -> tuple[float, float]:
        """Seconds of a measurement and, on average over the run, of a step."""
        started = time.monotonic()
        self._trainer.validate(self._validation)
        self._meter.measure(self._weights())
        measure_s = time.monotonic() - started
        share = self._config.first_depth_share
        step_s = (1 - share) * self._time_steps(first_depth_only=False)
        if share:
            step_s += share * self._time_steps(first_depth_only=True)
        return measure_s, step_s

    def _time_steps(self, *, first_depth_only: bool) -> float:
        """Seconds of a step, by some that are taken back."""
        settings = self._trainer.config
        before = {name: tensor.clone() for name, tensor in self._trainer.tensors().items()}
        timed = self._trainer.begun_anew(replace(settings, first_depth_steps=_TIMED_STEPS if first_depth_only else 0))
        step_s = statistics.median(timed.take_step().seconds for _ in range(_TIMED_STEPS))
        self._trainer = self._trainer.begun_anew(settings)
        self._trainer.restore(before, 0)
        return step_s

    def _assess(self, plan: Plan) -> None:
        step = self._trainer.step
        depths = self._trainer.validate(self._validation)
        self._run.log(
            kind="validation",
            step=step,
            **{name: [getattr(depth, name) for depth in depths] for name in ("correct", "acceptance", "loss")},
        )
        self._before_measuring(step)
        weights = self._weights()
        measured = self._meter.measure(weights)
        self._run.log(kind="measured", step=step, **measured.to_json())
        if measured.tau >= self._best:
            self._best = measured.tau
            self._write_heads(weights, measured, step, plan)
        self._save()
        plot_run(self._run.metrics(), self._run.path / PLOT_NAME)

    def _save(self) -> None:
        self._run.save(self._trainer.tensors(), {"step": self._trainer.step, "best": self._best})
        self._saved = time.monotonic()

    def _weights(self) -> dict[str, NDArray[np.float32]]:
        return {name: weight.detach().float().numpy().copy() for name, weight in self._heads.own_weights().items()}

    def _note(self, metrics: StepMetrics) -> str:
        correct = " ".join(spoken(depth.correct, 2) for depth in metrics.depths)
        return (
            f"loss {metrics.loss:.3f}, right by depth {correct}, {metrics.tokens / metrics.seconds:.0f} tokens/s, "
            f"measured {self._best:.2f} tokens a round"
        )


def best_measured(metrics: Sequence[dict[str, Any]]) -> tuple[int, MeasuredAcceptance]:
    """The step whose heads were kept, and what they reached: of the best, the last."""
    entries = [entry for entry in metrics if entry.get("kind") == "measured"]
    best = max(entries, key=lambda entry: (entry["tau"], entry["step"]))
    return best["step"], MeasuredAcceptance.from_json(best)
