"""Grafting heads on a model that is trained with them: heads alone on the frozen trunk, then both.

    OUT/alone/                          a frozen graft, whole: text, taps, heads for the model as it was
    OUT/model/, OUT/heads.safetensors   the best trunk and its heads so far
    OUT/state.safetensors, ...          as `headstart.train.graft` has them, of the second stage

The result is another model, which writes other words. How far it has gone is measured on held-out text before anything
is kept, and a run that goes too far ends with the last one that had not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.architectures.reading import read_config
from headstart.checkpoint import open_checkpoint
from headstart.checkpoint.heads_file import HeadsHeader, write_heads
from headstart.checkpoint.safetensors import HEADS_NAME
from headstart.errors import ConfigError, HeadstartError
from headstart.runtime.native import load_trunk
from headstart.runtime.open_heads import identify_trunk
from headstart.runtime.torch_runtime import load_weights
from headstart.train.graft import VALIDATION_WINDOWS, GraftResult, graft, run_settings
from headstart.train.graft_parts import (
    TapBatches,
    TrainingText,
    layers_to_read,
    make_loss_config,
    make_trainer_config,
    make_trunk_head,
    part_text,
)
from headstart.train.graft_reading import read_taps
from headstart.train.graft_text import TEXT_NAME, open_text
from headstart.train.graft_training import GraftTraining, Plan, best_measured
from headstart.train.heads_module import HeadsModule
from headstart.train.joint_config import JointConfig
from headstart.train.joint_loss import drift
from headstart.train.joint_model import JointMeter, ModelFolder
from headstart.train.joint_trainer import JointTrainer
from headstart.train.measured import MeasuredAcceptance
from headstart.train.phases import Progress, Reporter, Show, StoppedError
from headstart.train.prompts import PromptSource
from headstart.train.run_clock import RunClock
from headstart.train.run_directory import RunDirectory, read_state
from headstart.train.text_shard import Document
from headstart.train.trainer import WEIGHTS, under
from headstart.train.trunk_module import TrunkModule
from headstart.train.warm_start import read_warm_start

ALONE_NAME = "alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class JointResult(GraftResult):
    """What came of a joint training; steps are those of its second stage.

    Attributes:
        model_folder: of the trunk that was trained.
        drift: KL(trunk as it was || trained) on held-out text, nats a token.
        alone: what heads reached on the model as it was.
    """

    model_folder: Path
    drift: float
    alone: MeasuredAcceptance


def graft_jointly(
    source: str | Path,
    out: str | Path,
    config: JointConfig,
    prompts: PromptSource | Path,
    *,
    from_heads: Path | None = None,
    show: Show = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> JointResult | None:
    """Graft heads on a model and train both; goes on if `out` holds an unfinished run with the same settings.

    Args:
        source, out, prompts, from_heads, show, should_stop: as for `headstart.train.graft.graft`.
        config: what, and how.

    Returns:
        What came of it; `None` if it was stopped, and goes on when it is called again.

    Raises:
        ConfigError: settings that cannot hold, or other ones than the run in `out` has.
        CheckpointError, UnsupportedError: the model, or a file of the run, cannot be used; or the trained model could
            not be written.
        HeadstartError: training diverged, or the trunk went too far from what it was.
    """
    training = _JointGraft(source, Path(out), config, prompts, from_heads, show, should_stop)
    try:
        return training.run()
    except StoppedError:
        return None


class _JointGraft:
    """One call of `graft_jointly`."""

    def __init__(
        self,
        source: str | Path,
        out: Path,
        config: JointConfig,
        prompts: PromptSource | Path,
        from_heads: Path | None,
        show: Show,
        should_stop: Callable[[], bool],
    ) -> None:
        self._source, self._joint, self._prompts = source, config, prompts
        self._from_heads, self._show, self._should_stop = from_heads, show, should_stop
        self._stage = config.together()
        self._checkpoint = open_checkpoint(source)
        _, self._trunk_config = read_config(self._checkpoint)
        self._heads_config = self._stage.heads_config(self._trunk_config)
        self._start = None if from_heads is None else read_warm_start(from_heads, self._heads_config, self._checkpoint)
        self._settings = run_settings(config.settings(), self._heads_config, prompts, self._start)
        self._run = RunDirectory(out, self._settings | {"model": self._checkpoint.digest()})
        self._folder = ModelFolder(out, self._checkpoint, f"{identify_trunk(self._checkpoint).name}-joint")

    @property
    def _alone(self) -> Path:
        return self._run.path / ALONE_NAME

    def run(self) -> JointResult:
        if isinstance(self._prompts, Path):  # hours before it would matter
            _require_whole(list(open_text(self._prompts / TEXT_NAME, self._checkpoint).documents()), self._stage.window)
        if not self._alone.exists():  # likewise
            self._folder.write(load_weights(self._checkpoint))
            self._folder.clear()
        alone = graft(
            self._source,
            self._alone,
            self._joint.alone(),
            self._prompts,
            from_heads=self._from_heads,
            show=self._show,
            should_stop=self._should_stop,
        )
        if alone is None:
            raise StoppedError
        clock = RunClock(self._run, self._stage.minutes)
        result = self._run.recall("result")
        if result is None:
            result = self._train(clock)
            clock.note(at_once=True)
            self._run.remember("result", result)
        metrics = self._run.metrics()
        step, measured = best_measured(metrics)
        return JointResult(
            heads=self._run.path / HEADS_NAME,
            measured=measured,
            step=step,
            spent_s=alone.spent_s + clock.spent_s,
            model_folder=self._folder.path,
            drift=next(entry["drift"] for entry in metrics if entry["kind"] == "drift" and entry["step"] == step),
            alone=alone.measured,
            **result,
        )

    def _train(self, clock: RunClock) -> dict[str, Any]:
        """The second stage; returns the figures that are remembered."""
        stage, heads_config, trunk_config = self._stage, self._heads_config, self._trunk_config
        report = Reporter(clock, self._show_joint, self._should_stop)
        runs = [self._prompts, self._alone] if isinstance(self._prompts, Path) else [self._alone]
        store = open_text(runs[0] / TEXT_NAME, self._checkpoint)
        documents = list(store.documents())
        _require_whole(documents, stage.window)
        text = part_text(documents, stage, heads_config, trunk_config, self._start)
        weights = load_weights(self._checkpoint)
        trunk_head = make_trunk_head(weights, trunk_config)
        native = load_trunk(self._checkpoint, threads=stage.threads, taps=layers_to_read(heads_config, trunk_config))
        cache = read_taps(runs, documents, self._checkpoint, native, trunk_head, report)
        batches = TapBatches(cache, heads_config, trunk_config)
        trunk = TrunkModule(trunk_config, weights, heads_config.taps)
        del weights  # the module has its own, and a second copy would wait through the whole run
        heads = self._heads_of_first_stage(trunk, text)
        trainer = JointTrainer(
            heads,
            trunk,
            trunk_head.unembedding,
            make_loss_config(stage),
            self._joint,
            # a window at a time: what waits for the backward pass is the trunk's, and large
            replace(make_trainer_config(stage), micro_windows=1),
            len(text.windows),
            lambda indices: batches.batch(text.windows, indices),
        )
        meter = JointMeter(trunk, self._folder, heads_config, text.draft_ids, text.prompts, stage.threads)
        figures = {"text_tokens": store.num_supervised, "distinct_8gram_share": text.distinct_8gram_share}
        judged = batches.singly(text.validation, VALIDATION_WINDOWS)

        def guard(step: int) -> None:
            self._judge(step, drift(trunk, judged, trunk_head.unembedding))

        def write(arrays: dict[str, NDArray[np.float32]], measured: MeasuredAcceptance, step: int, plan: Plan) -> None:
            identity = identify_trunk(self._folder.keep())
            recipe = self._settings | asdict(plan) | figures | {"step": step, "vocabulary_coverage": text.coverage}
            about = measured.to_json() | {"on": "greedy answers to prompts that were held out"}
            header = HeadsHeader(heads=heads_config.to_json(), trunk=identity, recipe=recipe, measured=about)
            write_heads(self._run.path / HEADS_NAME, header, arrays, text.draft_ids)

        training = GraftTraining(
            self._run, stage, heads, trainer, len(text.windows), judged, meter, clock, report, write, guard
        )
        plan = training.train()
        self._folder.clear()
        return figures | {"num_steps": plan.num_steps}

    def _heads_of_first_stage(self, trunk: TrunkModule, text: TrainingText) -> HeadsModule:
        chosen = None if text.vocabulary is None else torch.from_numpy(text.vocabulary)
        heads = HeadsModule(self._heads_config, self._trunk_config, trunk.weights(), chosen)
        tensors, _ = read_state(self._alone)
        heads.load_own(under(tensors, WEIGHTS))
        return heads

    def _judge(self, step: int, found: float) -> None:
        """Note how far the trunk has gone, and end a run that went too far."""
        self._run.log(kind="drift", step=step, drift=found)
        if found <= self._joint.max_drift:
            return
        self._folder.clear()
        kept = f"The best one within the limit is in {self._folder.path}" if step else "Nothing was kept"
        raise HeadstartError(
            f"Step {step}: the model has gone {found:.4f} nats a token from what it was, more than max_drift = "
            f"{self._joint.max_drift:g} allows. {kept}. Train in another folder with a lower trunk learning rate or "
            "fewer epochs, or go on in this one with a higher limit."
        )

    def _show_joint(self, progress: Progress) -> None:
        self._show(replace(progress, phase="joint") if progress.phase == "training" else progress)


def _require_whole(documents: Sequence[Document], window: int) -> None:
    """The trunk as it was saw documents whole; cut, they would be compared with what another context gives."""
    longest = max(len(document.tokens) for document in documents)
    if longest > window:
        raise ConfigError(
            f"The text has documents of up to {longest} tokens, more than window = {window}. A trunk is trained on "
            f"whole documents: give a window of {longest} or more, or another text."
        )
