"""The loop of a pretraining: steps, judgements in between, and states to go on from.

    steps   0 ... validate ... validate ... measure ... num_steps
            states are saved between steps, whenever `save_every_s` have passed

Everything but the times at which states are saved follows from the settings, so a run that was killed at any moment
ends with the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields

from torch import Tensor

from headstart.train.means import spoken
from headstart.train.phases import Reporter, StoppedError
from headstart.train.pretrain.acceptance import Acceptance, PretrainMeter
from headstart.train.pretrain.batch import LabelledText
from headstart.train.pretrain.config import TrainConfig
from headstart.train.pretrain.plan import Pace, Plan, make_plan
from headstart.train.pretrain.state_store import StateStore
from headstart.train.pretrain.team import Team
from headstart.train.pretrain.trackers import Send, flat
from headstart.train.pretrain.trainer import PretrainTrainer, StepMetrics
from headstart.train.pretrain.validation import Validation, validate
from headstart.train.run_clock import RunClock
from headstart.train.run_directory import RunDirectory

# steps whose speed says how many the time allows; the first is slower
_TIMED_STEPS = 5


class PretrainLoop:
    """Trains in a run's folder, or goes on with it."""

    def __init__(
        self,
        run: RunDirectory,
        train: TrainConfig,
        trainer: PretrainTrainer,
        validation: Sequence[LabelledText],
        token_bytes: Tensor,
        meter: PretrainMeter | None,
        clock: RunClock,
        report: Reporter,
        trackers: Sequence[Send],
        team: Team,
    ) -> None:
        """Take the parts.

        Args:
            run: the folder.
            train: how long, and how often what is done.
            trainer: at step 0; its number of steps is replaced.
            validation: held-out windows.
            token_bytes: int64 [vocab_size], bytes that each token stands for.
            meter: measures acceptance; `None` without heads.
            clock: limits the steps, if it has a limit.
            report: told of each step.
            trackers: sent figures as well.
            team: the processes that train.
        """
        self._team, self._store = team, StateStore(run, team)
        self._run, self._train, self._trainer = run, train, trainer
        self._validation, self._token_bytes, self._meter = validation, token_bytes, meter
        self._clock, self._report, self._trackers = clock, report, trackers
        self._saved = time.monotonic()
        self._note = ""

    def train(self) -> PretrainTrainer:
        """Take all steps that are left; returns the trainer after the last.

        Raises:
            StoppedError: the run is to stop; its state is saved.
            HeadstartError: training diverged.
        """
        plan = self._resume()
        trainer = self._trainer
        try:
            while not trainer.finished:
                metrics = trainer.take_step()
                self._log_step(metrics)
                self._judge(plan)
                (due,) = self._team.agree(time.monotonic() - self._saved >= self._train.save_every_s)
                if trainer.finished or due:
                    self._save()
                self._report.tell("training", trainer.step, plan.num_steps, _spoken(metrics) + self._note)
        except StoppedError:
            self._save()
            raise
        return trainer

    def _resume(self) -> Plan:
        """Take up what is saved and planned; plan what is not."""
        saved, known = self._store.load(self._trainer.like), self._run.recall("plan")
        self._team.wait()  # all have read before one writes
        if saved is None:
            self._run.forget_after(-1)
            plan = Plan(**known) if known is not None else make_plan(self._train, self._pace())
            agreed = self._team.agree(*astuple(plan))
            plan = Plan(**{field.name: int(number) for field, number in zip(fields(Plan), agreed, strict=True)})
            self._run.remember("plan", asdict(plan))
            self._trainer = self._trainer.begun_anew(plan.num_steps)
            return plan
        if known is None:
            raise self._run.damaged("plan")
        plan = Plan(**known)
        self._trainer = self._trainer.begun_anew(plan.num_steps)
        tensors, progress = saved
        self._trainer.restore(tensors, progress)
        self._run.forget_after(self._trainer.step)
        return plan

    def _pace(self) -> Pace | None:
        """What parts of the run take, by trying each; `None` if the time has no limit."""
        if self._clock.limit_s is None:
            return None
        self._report.tell("training", 0, 1, "finding out how fast it goes")
        step_s = self._trainer.time_steps(_TIMED_STEPS)
        started = time.monotonic()
        self._assess()
        validate_s = time.monotonic() - started
        if self._meter is not None:
            self._measure(self._meter)
        measure_s = time.monotonic() - started - validate_s
        return Pace(left_s=self._clock.left_s, step_s=step_s, validate_s=validate_s, measure_s=measure_s)

    def _judge(self, plan: Plan) -> None:
        """Whatever is due after the step that was taken."""
        trainer = self._trainer
        if trainer.step % plan.validate_every == 0 or trainer.finished:
            found = self._assess()
            self._log("validation", found.to_json())
            self._note = f", held out {found.bits_per_byte:.3f} bits a byte"
        if self._meter is not None and (trainer.step % plan.measure_every == 0 or trainer.finished):
            measured = self._measure(self._meter)
            if measured is not None:
                self._log("measured", measured.to_json())

    def _assess(self) -> Validation:
        return validate(self._trainer, self._validation, self._token_bytes)

    def _measure(self, meter: PretrainMeter) -> Acceptance | None:
        """In the leading process, while the others wait."""
        weights = self._team.whole(self._trainer.weights())
        measured = meter.measure(weights) if self._team.leads else None
        self._team.wait()
        return measured

    def _log_step(self, metrics: StepMetrics) -> None:
        self._log("step", metrics.to_json())

    def _log(self, kind: str, entry: dict[str, object]) -> None:
        step = self._trainer.step
        self._run.log(kind=kind, step=step, **entry)
        for send in self._trackers:
            send(flat(entry, kind), step)

    def _save(self) -> None:
        self._store.save(*self._trainer.state())
        self._saved = time.monotonic()


def _spoken(metrics: StepMetrics) -> str:
    losses = " ".join(spoken(head.loss, 3) for head in metrics.heads)
    return f"loss by head {losses}, {metrics.tokens / metrics.seconds:.0f} tokens/s"
