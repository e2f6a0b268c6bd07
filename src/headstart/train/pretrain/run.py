"""A pretraining as a whole: corpus, model, loop, and a folder that every verb takes.

    OUT/config.json, model.safetensors, tokenizer.json, ...   the model
    OUT/heads.safetensors                                     its heads
    OUT/run/                  settings, metrics.jsonl, and the state that training goes on from
    OUT/data/                 the corpus, if it was prepared for this run

It can be interrupted or killed at any moment and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from headstart.checkpoint.safetensors import HEADS_NAME
from headstart.errors import ConfigError
from headstart.train.corpus import Corpus, CorpusWindows, open_corpus, validation_windows
from headstart.train.corpus.prepare import CorpusConfig, Preparing, prepare_corpus
from headstart.train.folder_lock import FolderLock
from headstart.train.phases import Progress, Reporter, Show, StoppedError
from headstart.train.plot import plot_run
from headstart.train.pretrain.acceptance import Acceptance, PretrainMeter, prompts_of
from headstart.train.pretrain.batch import LabelledText, labelled_text
from headstart.train.pretrain.blueprint import make_blueprint
from headstart.train.pretrain.config import PretrainConfig
from headstart.train.pretrain.followed_run import FollowedRun
from headstart.train.pretrain.initial_weights import count_parameters
from headstart.train.pretrain.loop import PretrainLoop
from headstart.train.pretrain.parts import (
    make_layout,
    make_model,
    require_same_vocabulary,
)
from headstart.train.pretrain.team import Team
from headstart.train.pretrain.trackers import open_trackers
from headstart.train.pretrain.trainer import PretrainTrainer
from headstart.train.pretrain.written_model import ModelWriter
from headstart.train.run_clock import RunClock
from headstart.train.run_directory import RunDirectory

RUN_NAME, DATA_NAME = "run", "data"

_T = TypeVar("_T")

_MEASURED_PROMPTS = 12
_PROMPT_TOKENS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainResult:
    """What came of a pretraining.

    Attributes:
        model: the folder.
        heads: the file of its heads, or `None`.
        num_parameters: of trunk and heads together.
        num_steps: that were taken.
        num_skipped: of these, how many the guard kept from the weights.
        num_tokens: that were trained on, repeated ones counted each time.
        bits_per_byte: of the trunk on held-out windows.
        losses: nats on held-out windows, the trunk's first; `None` for depths that no window is long enough for.
        correct: share of guesses there that were right, likewise.
        measured: what the native engine accepted on held-out prompts, or `None` without heads.
        spent_s: seconds of training, over all the times that the run was taken up.
    """

    model: Path
    heads: Path | None
    num_parameters: int
    num_steps: int
    num_skipped: int
    num_tokens: int
    bits_per_byte: float
    losses: tuple[float | None, ...]
    correct: tuple[float | None, ...]
    measured: Acceptance | None
    spent_s: float


def pretrain(
    config: PretrainConfig,
    out: str | Path,
    *,
    show: Show = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PretrainResult | None:
    """Train a model; goes on if `out` holds an unfinished run with the same settings.

    In processes that torchrun has started it is one run of all of them, each with a part of the weights and the text.

    Args:
        config: what, on what text, and how.
        out: the folder of the model and the run.
        show: told of progress.
        should_stop: asked after every step, and while a text is prepared.

    Returns:
        What came of it; `None` if it was stopped, and goes on when it is called again.

    Raises:
        ConfigError: settings that cannot hold, or other ones than the run in `out` has.
        CheckpointError, UnsupportedError: the text, a model, or a file of the run cannot be used.
        HeadstartError: training diverged.
    """
    team = Team(config.train.device)
    try:
        return _Pretraining(config, Path(out), team, show, should_stop).run()
    except StoppedError:
        return None
    finally:
        team.leave()


class _Pretraining:
    """One call of `pretrain`."""

    def __init__(
        self, config: PretrainConfig, out: Path, team: Team, show: Show, should_stop: Callable[[], bool]
    ) -> None:
        self._config, self._out, self._team = config, out, team
        _in_turn(team, lambda: _require_no_other_model(out))
        # before anything is written there; the run's folder is locked by it as well
        self._lock = _in_turn(team, lambda: FolderLock.take(out / RUN_NAME) if team.leads else None)
        self._corpus = _in_turn(team, lambda: _open_text(config, out, show, should_stop))
        self._blueprint = make_blueprint(config, self._corpus.vocab_size)
        if self._blueprint.source is not None:
            require_same_vocabulary(self._blueprint.source, self._corpus)
        self._settings = config.settings() | {"corpus": self._corpus.digest}
        if self._blueprint.source is not None:
            self._settings["start"] = self._blueprint.source.digest()
        kind = RunDirectory if team.leads else FollowedRun
        self._run = _in_turn(team, lambda: kind(out / RUN_NAME, self._settings))
        self._clock = RunClock(self._run, config.train.minutes or None)
        # all processes tell of the same steps, so that all ask together whether to stop
        self._report = Reporter(
            self._clock, show if team.leads else _say_nothing, lambda: bool(team.agree(should_stop())[0])
        )
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        layout = make_layout(self._blueprint, self._corpus, out.name, self._settings)
        self._writer = ModelWriter(layout, self._run.path, out)

    def run(self) -> PretrainResult:
        result = self._run.recall("result")
        if result is None:
            result = self._train()
            self._run.remember("result", result)
        self._team.wait()
        return self._result(result)

    def _train(self) -> dict[str, Any]:
        config, corpus = self._config, self._corpus
        train = config.train
        team = self._team
        windows = CorpusWindows(
            corpus.train, config.data.window, train.batch_windows, train.seed, rank=team.rank, world_size=team.size
        )
        model = team.place(make_model(self._blueprint, train.seed))

        def batches(step: int) -> LabelledText:
            return labelled_text(windows.batch(step), team.device)

        held_out = validation_windows(corpus.validation, config.data.window, config.data.validation_windows)
        judged = labelled_text(held_out, team.device).split(train.windows_at_once)
        trainer = PretrainTrainer(model, train, config.heads, train.max_steps, batches, team)
        tracked = train.track if team.leads else ()
        with open_trackers(tracked, self._run, self._settings) as trackers:
            trainer = PretrainLoop(
                self._run,
                train,
                trainer,
                judged,
                torch.from_numpy(corpus.token_bytes),
                self._meter(),
                self._clock,
                self._report,
                trackers,
                team,
            ).train()
        weights = team.whole(trainer.weights())
        if team.leads:
            self._writer.place(weights, self._last("measured") or {})
            plot_run(self._run.metrics(), self._run.path / "plot.svg", with_trunk=True)
        self._clock.note(at_once=True)
        return {
            "num_parameters": count_parameters(model.parameters()),
            "num_steps": trainer.num_steps,
            "num_skipped": trainer.num_skipped,
            "num_tokens": trainer.num_steps * train.batch_windows * config.data.window,
        }

    def _meter(self) -> PretrainMeter | None:
        """What measures acceptance, if there are heads, and held-out documents long enough to go on from."""
        heads = self._blueprint.heads
        prompt_tokens = max(1, min(_PROMPT_TOKENS, self._config.data.window // 4))
        prompts = prompts_of(self._corpus.validation, _MEASURED_PROMPTS, prompt_tokens)
        if heads is None or not prompts:
            return None
        return PretrainMeter(self._writer, heads, prompts, self._config.train.threads or None)

    def _last(self, kind: str) -> dict[str, Any] | None:
        """The last line of metrics of a kind."""
        entries = [entry for entry in self._run.metrics() if entry.get("kind") == kind]
        return entries[-1] if entries else None

    def _result(self, figures: dict[str, Any]) -> PretrainResult:
        judged, measured = self._last("validation"), self._last("measured")
        assert judged is not None, "the last step is judged"
        heads = self._out / HEADS_NAME
        return PretrainResult(
            model=self._out,
            heads=heads if self._blueprint.heads is not None else None,
            bits_per_byte=judged["bits_per_byte"],
            losses=tuple(judged["losses"]),
            correct=tuple(judged["correct"]),
            measured=None if measured is None else Acceptance.from_json(measured),
            spent_s=self._clock.spent_s,
            **figures,
        )


def _require_no_other_model(out: Path) -> None:
    """Refuse a folder with a model that no run has written there: this one's would take its place, file by file."""
    if not (out / RUN_NAME).exists() and ((out / "config.json").exists() or any(out.glob("*.safetensors*"))):
        raise ConfigError(
            f"{out} holds a model that no run has written there. Name a new folder; [model] start says what to go on "
            "from."
        )


def _open_text(config: PretrainConfig, out: Path, show: Show, should_stop: Callable[[], bool]) -> Corpus:
    """The corpus that was prepared before, or is now.

    Raises:
        StoppedError: the run is to stop; a corpus that is not complete is prepared anew.
    """
    data = config.data
    if data.path:
        return open_corpus(data.path)
    asked = CorpusConfig(sources=data.sources, tokenizer=config.model.start or data.tokenizer or "bytes")
    num_done = 0

    def tell(progress: Preparing) -> None:
        nonlocal num_done
        num_done += progress.done
        note = f"{progress.source}: {progress.documents} documents, {progress.bytes / 1e6:.1f} MB"
        show(Progress(phase="preparing", done=num_done, total=max(num_done, len(data.sources)), note=note))
        if should_stop():
            raise StoppedError

    return prepare_corpus(out / DATA_NAME, asked, tell)


def _in_turn(team: Team, make: Callable[[], _T]) -> _T:
    """What all make, the leading process first, so that the others find what it wrote.

    Raises:
        StoppedError: in the others, if the leading process was stopped or failed, which it tells itself.
    """
    if not team.leads:
        (has_made,) = team.agree(False)
        if not has_made:
            raise StoppedError
        return make()
    has_made = False
    try:
        made = make()
        has_made = True
    finally:
        team.agree(has_made)
    return made


def _say_nothing(progress: Progress) -> None:
    """Of processes that do not lead."""
