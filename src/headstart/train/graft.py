"""Grafting heads on a finished model: text, taps, training, and the best heads by measured acceptance.

    OUT/text/               what the model wrote
    OUT/taps/               what its layers said of it; may be deleted afterwards
    OUT/state.safetensors   where training stands
    OUT/heads.safetensors   the best heads so far
    OUT/metrics.jsonl, plot.svg, config.json, decisions.json

Every phase can be interrupted and is taken up where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.checkpoint.heads_file import HeadsHeader, write_heads
from headstart.checkpoint.safetensors import HEADS_NAME
from headstart.errors import ConfigError
from headstart.runtime.native import load_trunk
from headstart.runtime.open_heads import identify_trunk
from headstart.runtime.torch_runtime import load_weights
from headstart.train.graft_config import GraftConfig
from headstart.train.graft_parts import (
    BORROWED,
    TapBatches,
    layers_to_read,
    make_heads,
    make_trainer,
    make_trunk_head,
    part_text,
)
from headstart.train.graft_reading import read_taps
from headstart.train.graft_text import TEXT_NAME, grow_text, open_text, text_is_whole
from headstart.train.graft_training import GraftTraining, Plan, best_measured
from headstart.train.holdout import require_beginnings
from headstart.train.measured import AcceptanceMeter, MeasuredAcceptance
from headstart.train.phases import Reporter, Show, StoppedError
from headstart.train.prompts import PromptSource, prompts_digest
from headstart.train.run_clock import RunClock
from headstart.train.run_directory import RunDirectory
from headstart.train.text_store import HEADER_NAME, TextStore
from headstart.train.warm_start import WarmStart, read_warm_start

VALIDATION_WINDOWS = 12
"""Of the held-out text, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraftResult:
    """What came of a graft.

    Attributes:
        heads: the file of the best heads.
        measured: what these reached on held-out prompts.
        step: after which they were taken.
        num_steps: of the whole run.
        text_tokens: supervised tokens of the text.
        distinct_8gram_share: of the text, see `headstart.train.repetition.distinct_share`; a text that repeats itself
            makes heads look better than they are.
        spent_s: seconds, over all the times that the run was taken up.
    """

    heads: Path
    measured: MeasuredAcceptance
    step: int
    num_steps: int
    text_tokens: int
    distinct_8gram_share: float | None
    spent_s: float


def graft(
    source: str | Path,
    out: str | Path,
    config: GraftConfig,
    prompts: PromptSource | Path,
    *,
    from_heads: Path | None = None,
    show: Show = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> GraftResult | None:
    """Graft heads on a model; goes on if `out` holds an unfinished run with the same settings.

    Args:
        source: what `open_checkpoint` takes.
        out: the run's folder.
        config: what, and how.
        prompts: what the model is asked for its text; or the folder of another run, whose text is taken, and its taps
            if they are the same.
        from_heads: a heads file, whose heads are trained further; see `headstart.train.warm_start.read_warm_start`.
        show: told of progress.
        should_stop: asked after every document and step.

    Returns:
        What came of it; `None` if it was stopped, and goes on when it is called again.

    Raises:
        ConfigError: settings that cannot hold, or other ones than the run in `out` has.
        CheckpointError, UnsupportedError: the model, or a file of the run, cannot be used.
        HeadstartError: training diverged.
    """
    grafting = _Grafting(open_checkpoint(source), Path(out), config, prompts, from_heads, show, should_stop)
    try:
        return grafting.run()
    except StoppedError:
        return None


class _Grafting:
    """One call of `graft`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        out: Path,
        config: GraftConfig,
        prompts: PromptSource | Path,
        from_heads: Path | None,
        show: Show,
        should_stop: Callable[[], bool],
    ) -> None:
        if not isinstance(prompts, Path):
            require_beginnings(prompts)
        self._checkpoint, self._config, self._prompts = checkpoint, config, prompts
        _, self._trunk_config = read_config(checkpoint)
        self._heads_config = config.heads_config(self._trunk_config)
        self._start = None if from_heads is None else read_warm_start(from_heads, self._heads_config, checkpoint)
        self._settings = run_settings(config.settings(), self._heads_config, prompts, self._start)
        self._run = RunDirectory(out, self._settings | {"model": checkpoint.digest()})
        self._clock = RunClock(self._run, config.minutes)
        self._report = Reporter(self._clock, show, should_stop)
        if config.threads:
            torch.set_num_threads(config.threads)

    def run(self) -> GraftResult:
        result = self._run.recall("result")
        if result is None:
            result = self._train(self._text())
            self._clock.note(at_once=True)
            self._run.remember("result", result)
        elif not isinstance(self._prompts, Path) and (self._run.path / TEXT_NAME / HEADER_NAME).exists():
            self._text()  # others may take it, so shards that were lost are written again
        step, measured = best_measured(self._run.metrics())
        return GraftResult(
            heads=self._run.path / HEADS_NAME, measured=measured, step=step, spent_s=self._clock.spent_s, **result
        )

    def _text(self) -> TextStore:
        if isinstance(self._prompts, Path):
            return open_text(self._prompts / TEXT_NAME, self._checkpoint)
        distill = self._config.distill_config(self._trunk_config.max_context)
        return grow_text(
            self._run, self._checkpoint, self._prompts, distill, self._clock, self._report, self._config.threads
        )

    def _train(self, store: TextStore) -> dict[str, Any]:
        """Train on a text; returns the figures that are remembered."""
        config, heads_config, trunk_config = self._config, self._heads_config, self._trunk_config
        documents = list(store.documents())
        text = part_text(documents, config, heads_config, trunk_config, self._start)
        weights = load_weights(self._checkpoint, only=BORROWED)
        layers = layers_to_read(heads_config, trunk_config)
        trunk = load_trunk(self._checkpoint, threads=config.threads, taps=layers)
        trunk_head = make_trunk_head(weights, trunk_config)
        runs = [self._prompts, self._run.path] if isinstance(self._prompts, Path) else [self._run.path]
        cache = read_taps(runs, documents, self._checkpoint, trunk, trunk_head, self._report)
        batches = TapBatches(cache, heads_config, trunk_config)
        heads = make_heads(heads_config, trunk_config, weights, text, batches, config.seed, self._start)
        trainer = make_trainer(heads, config, text, batches, trunk_head)
        if heads_config.taps != layers:  # heads run beside a trunk that keeps what they read and no more
            trunk = load_trunk(self._checkpoint, threads=config.threads, taps=heads_config.taps)
        meter = AcceptanceMeter(trunk, self._checkpoint, heads_config, text.draft_ids, text.prompts)
        figures = {"text_tokens": store.num_supervised, "distinct_8gram_share": text.distinct_8gram_share}
        identity = identify_trunk(self._checkpoint)

        def write(arrays: dict[str, NDArray[np.float32]], measured: MeasuredAcceptance, step: int, plan: Plan) -> None:
            recipe = self._settings | asdict(plan) | figures | {"step": step, "vocabulary_coverage": text.coverage}
            about = measured.to_json() | {"on": "greedy answers to prompts that were held out"}
            header = HeadsHeader(heads=heads_config.to_json(), trunk=identity, recipe=recipe, measured=about)
            write_heads(self._run.path / HEADS_NAME, header, arrays, text.draft_ids)

        judged = batches.singly(text.validation, VALIDATION_WINDOWS)
        training = GraftTraining(
            self._run, config, heads, trainer, len(text.windows), judged, meter, self._clock, self._report, write
        )
        return figures | {"num_steps": training.train().num_steps}


def run_settings(
    settings: dict[str, Any], heads: HeadsConfig, prompts: PromptSource | Path, start: WarmStart | None
) -> dict[str, Any]:
    """All that a run's outcome depends on but the model.

    Args:
        settings: of the config.
        heads: what they look like.
        prompts: as `text_digest`.
        start: heads that training goes on from.

    Raises:
        ConfigError: as `text_digest`.
    """
    found = settings | {"heads": heads.to_json(), "prompts": text_digest(prompts)}
    return found if start is None else found | {"from_heads": start.digest}


def text_digest(prompts: PromptSource | Path) -> str:
    """What tells the text of one run from another's.

    Args:
        prompts: what the model is asked, or the folder of a run that has a text.

    Raises:
        ConfigError: the folder has none, or one that is not whole yet.
    """
    if not isinstance(prompts, Path):
        return prompts_digest(prompts)
    header = prompts / TEXT_NAME / HEADER_NAME
    if not header.is_file():
        raise ConfigError(
            f"{prompts} holds no text: there is no {header}. Name the folder of another run; of a joint one, the text "
            "lies in the folder alone."
        )
    if not text_is_whole(prompts):
        raise ConfigError(
            f"The text in {prompts} is still being written: what is there now would not be what is there later. Let "
            "that run finish it first."
        )
    return f"text {hashlib.blake2b(header.read_bytes(), digest_size=16).hexdigest()}"
