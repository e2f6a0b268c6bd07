"""Grafting heads on a finished model: text, taps, training, and the best heads by measured acceptance.

    OUT/text/               what the model wrote
    OUT/taps/               what its layers said of it; may be deleted afterwards
    OUT/state.safetensors   where training stands
    OUT/heads.safetensors   the best heads so far
    OUT/metrics.jsonl, plot.svg, config.json

Every phase can be interrupted and is taken up where it was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadKind, HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.checkpoint.heads_file import HeadsHeader, write_heads
from headstart.engine import Engine
from headstart.errors import ConfigError
from headstart.runtime.native import load_trunk
from headstart.runtime.open_heads import identify_trunk
from headstart.runtime.torch_runtime import load_weights
from headstart.train.distill import DistillConfig, text_header, write_text
from headstart.train.draft_vocabulary import choose_vocabulary
from headstart.train.heads_loss import HeadsLossConfig
from headstart.train.heads_module import HeadsModule
from headstart.train.initialise import initialise
from headstart.train.loss_mix import LossMix
from headstart.train.measured import AcceptanceMeter, MeasuredAcceptance
from headstart.train.packing import pack
from headstart.train.plot import plot_run
from headstart.train.prompts import PromptSource
from headstart.train.run_directory import RunDirectory
from headstart.train.taps import TapCache, TapReader, TrunkHead
from headstart.train.text_store import Document, TextSource, TextStore
from headstart.train.trainer import HeadsTrainer, StepMetrics, TrainerConfig, state_of

HEADS_NAME = "heads.safetensors"

# one document of so many is held out
_HOLD_OUT = 40
_MEASURED_PROMPTS = 24
_VALIDATION_WINDOWS = 12
_FITTING_WINDOWS = 40

# steps whose speed says how many more the time allows
_TIMED_STEPS = 12
# of the minutes for everything: the text's share; reading it with the trunk takes about half as long again
_TEXT_SHARE = 0.3

Show = Callable[[str, float, float, str], None]
"""Told of progress: name of the phase, how much is done of how much, and a note such as the loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraftConfig:
    """What is grafted, and how.

    Attributes:
        kind: of heads.
        depth: guesses ahead that they are trained for.
        taps: trunk layers that they read; by default the last, for eagle3 three spread over the trunk.
        draft_vocab_size: tokens that can be guessed, 0 for all.
        num_layers: blocks of a module (medusa, parallel).
        text_tokens: supervised tokens that the model writes for them.
        window: tokens of a training window, and of a document at most.
        epochs: times that the text is gone through, unless `minutes` says how long to train.
        minutes: for everything together; then neither `text_tokens` nor `epochs` counts.
        loss: terms of the loss, see `LossMix.parse`.
        depth_decay: weight of a depth over that of the one before.
        feature_weight: of EAGLE-1's regression.
        learning_rate: at its highest.
        batch_windows: windows of a step.
        checkpoints: times that the heads are measured, and the best kept, spread over the run.
        seed: of everything random.
        threads: CPU threads; by default as many as the process may use.
    """

    kind: HeadKind
    depth: int = 4
    taps: tuple[int, ...] | None = None
    draft_vocab_size: int = 8192
    num_layers: int = 1
    text_tokens: int = 2_000_000
    window: int = 1024
    epochs: float = 4.0
    minutes: float | None = None
    loss: str = "kl"
    depth_decay: float = 0.8
    feature_weight: float = 0.0
    learning_rate: float = 2e-3
    batch_windows: int = 4
    checkpoints: int = 8
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be trained.

        Raises:
            ConfigError: a value is out of its range.
        """
        LossMix.parse(self.loss)
        for name in ("depth", "text_tokens", "batch_windows", "checkpoints"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: it must be at least 1.")
        for name in ("epochs", "minutes", "learning_rate", "depth_decay"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} = {value}: it must be above 0.")
        if self.window < 32:
            raise ConfigError(f"window = {self.window}: it must be at least 32.")

    def heads_config(self, trunk: TrunkConfig) -> HeadsConfig:
        """The heads for a trunk."""
        last = trunk.num_layers
        spread = tuple(sorted({max(1, last // 3), max(1, 2 * last // 3), last}))
        modules = self.depth if self.kind in ("medusa", "parallel") else 1
        return HeadsConfig(
            kind=self.kind,
            depth=self.depth,
            taps=self.taps or (spread if self.kind == "eagle3" else (last,)),
            hidden_stage="post_norm" if self.kind in ("medusa", "eagle") else "pre_norm",
            num_modules=modules,
            num_layers=self.num_layers,
            intermediate_size=trunk.intermediate_size,
            draft_vocab_size=0 if self.draft_vocab_size >= trunk.vocab_size else self.draft_vocab_size,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GraftResult:
    """What came of it.

    Attributes:
        heads: the file of the best heads.
        measured: what these reached on held-out prompts.
        step: after which they were taken.
        seconds: that this call took.
    """

    heads: Path
    measured: MeasuredAcceptance
    step: int
    seconds: float


def graft(
    source: str | Path, out: str | Path, config: GraftConfig, prompts: PromptSource, show: Show = lambda *_: None
) -> GraftResult:
    """Graft heads on a model; goes on if `out` holds an unfinished run with the same settings.

    Args:
        source: what `open_checkpoint` takes.
        out: the run's folder.
        config: what, and how.
        prompts: what the model is asked for its text.
        show: told of progress.

    Raises:
        ConfigError: settings that cannot hold, or other ones than the run in `out` has.
        CheckpointError, UnsupportedError: the model, or a file of the run, cannot be used.
        HeadstartError: training diverged.
    """
    return _Grafting(source, Path(out), config, prompts, show).run()


class _TimeIsUpError(Exception):
    """The share of the text is spent."""


class _Grafting:
    def __init__(self, source: str | Path, out: Path, config: GraftConfig, prompts: PromptSource, show: Show) -> None:
        self._started = time.monotonic()
        self._config, self._prompts, self._show = config, prompts, show
        self._checkpoint: Checkpoint = open_checkpoint(source)
        _, self._trunk_config = read_config(self._checkpoint)
        self._heads_config = config.heads_config(self._trunk_config)
        self._heads_config.check_trunk(self._trunk_config)
        settings = {name: value for name, value in asdict(config).items() if name != "threads"}
        self._settings = json.loads(json.dumps(settings | {"heads": self._heads_config.to_json()}))
        self._run = RunDirectory(out, self._settings | {"model": self._checkpoint.digest()})
        if config.threads:
            torch.set_num_threads(config.threads)

    def run(self) -> GraftResult:
        return self._train(self._write())

    # ---- the text

    def _write(self) -> TextStore:
        config = self._config
        by_time = config.minutes is not None
        wanted = 2**40 if by_time else config.text_tokens
        distill = DistillConfig(num_tokens=wanted, seed=config.seed, document_tokens=config.window)
        path = self._run.path / "text"
        source = TextSource.of(self._checkpoint)
        if (path / "text.json").exists():
            store = TextStore.open(path, source=source)
        else:
            store = TextStore.create(path, text_header(self._checkpoint, self._prompts, distill))
        if self._run.recall("text_is_whole"):
            return store
        deadline = None if config.minutes is None else 60 * config.minutes * _TEXT_SHARE
        before = float(self._run.recall("writing_s") or 0.0)
        begun = time.monotonic()

        def progress(written: Any) -> None:
            spent = before + time.monotonic() - begun
            self._run.remember("writing_s", spent)
            note = f"{written.tokens_per_s:.0f} tokens/s"
            if deadline is None:
                self._show("Writing text", written.num_supervised, written.num_wanted, note)
            else:
                self._show("Writing text", min(spent, deadline), deadline, f"{written.num_supervised} tokens, {note}")
                if spent >= deadline:
                    raise _TimeIsUpError

        with Engine.load(self._checkpoint.path, draft="none", threads=config.threads, max_batch=32) as engine:
            try:
                report = write_text(engine, store, self._prompts, distill, progress)
                self._run.log(kind="text", distinct_8gram_share=report.distinct_8gram_share)
            except _TimeIsUpError:
                store = TextStore.open(path, source=source)
        self._run.remember("text_is_whole", True)
        return store

    # ---- training

    def _train(self, store: TextStore) -> GraftResult:
        config, heads_config, trunk_config = self._config, self._heads_config, self._trunk_config
        documents = list(store.documents())
        held_out = range(0, len(documents), _HOLD_OUT)
        training = [number for number in range(len(documents)) if number % _HOLD_OUT]
        windows, validation = pack(documents, training, config.window), pack(documents, held_out, config.window)
        vocabulary = None
        coverage = 1.0
        if heads_config.draft_vocab_size:
            vocabulary, coverage = choose_vocabulary(windows, trunk_config.vocab_size, heads_config.draft_vocab_size)
        weights = load_weights(self._checkpoint)
        chosen = None if vocabulary is None else torch.from_numpy(vocabulary)
        heads = HeadsModule(heads_config, trunk_config, weights, chosen)
        unembedding = weights["embedding" if trunk_config.tied else "unembedding"].bfloat16()
        trunk_head = TrunkHead(
            final_norm=weights["final_norm"], norm_eps=trunk_config.norm_eps, unembedding=unembedding
        )
        layers = tuple(sorted({*heads_config.taps, trunk_config.num_layers}))
        trunk = load_trunk(self._checkpoint, threads=config.threads, taps=layers)
        width = trunk_config.hidden_size
        longest = max(len(document.tokens) for document in documents)
        cache = TapCache(
            self._run.path / "taps", documents, TapReader(trunk, longest), trunk_head, width * len(layers),
            self._tap_key(layers),
        )  # fmt: skip
        self._read(cache, documents)
        columns = _columns(heads_config.taps, layers, width)
        batches = [
            cache.batch(validation, [index], columns) for index in range(min(_VALIDATION_WINDOWS, len(validation)))
        ]
        generator = torch.Generator().manual_seed(config.seed)
        some = range(min(_FITTING_WINDOWS, len(windows)))
        initialise(heads, weights, [cache.batch(windows, [index], columns) for index in some], generator)
        saved = self._run.load()
        num_steps = int(self._run.recall("num_steps") or 0) or self._planned_steps(len(windows))
        loss = HeadsLossConfig(
            mix=LossMix.parse(config.loss),
            depth_weights=[config.depth_decay**index for index in range(config.depth)],
            feature_weight=config.feature_weight,
        )
        settings = TrainerConfig(
            num_steps=num_steps,
            batch_windows=min(config.batch_windows, len(windows)),
            learning_rate=config.learning_rate,
            seed=config.seed,
        )
        small = unembedding if chosen is None else unembedding[chosen]
        trainer = HeadsTrainer(
            heads, small, loss, settings, len(windows), lambda indices: cache.batch(windows, indices, columns)
        )
        best = 0.0
        if saved is not None:
            tensors, progress = saved
            trainer.restore(tensors, progress["step"])
            best = progress["best"]
            self._run.forget_after(trainer.step)
        elif self._run.recall("num_steps") is None:
            trainer = self._fit_to_time(trainer, settings)
        self._recipe = self._settings | {
            "num_steps": trainer.config.num_steps,
            "text_supervised_tokens": store.num_supervised,
            "vocabulary_coverage": coverage,
        }
        meter = AcceptanceMeter(
            self._checkpoint,
            self._checkpoint.tokenizer(),
            heads_config,
            None if vocabulary is None else vocabulary.astype(np.int32),
            _prompts_of([documents[number] for number in held_out])[:_MEASURED_PROMPTS],
            threads=config.threads,
        )
        every = max(1, trainer.config.num_steps // config.checkpoints)
        while not trainer.finished:
            metrics = trainer.take_step()
            self._note_step(metrics, trainer.config.num_steps, best)
            if trainer.step % every == 0 or trainer.finished:
                self._run.log(kind="validation", step=trainer.step, **_depth_lists(trainer.validate(batches)))
                measured = meter.measure(_as_arrays(heads))
                self._run.log(kind="measured", step=trainer.step, tau=measured.tau, survival=measured.survival)
                if measured.tau > best:
                    best = measured.tau
                    self._write_heads(heads, vocabulary, measured, trainer.step)
                self._run.save(trainer.tensors(), {"step": trainer.step, "best": best})
                plot_run(self._run.metrics(), self._run.path / "plot.svg")
        best_entry = max(
            (entry for entry in self._run.metrics() if entry.get("kind") == "measured"), key=lambda entry: entry["tau"]
        )
        return GraftResult(
            heads=self._run.path / HEADS_NAME,
            measured=MeasuredAcceptance(tau=best_entry["tau"], survival=tuple(best_entry["survival"]), rounds=0),
            step=best_entry["step"],
            seconds=time.monotonic() - self._started,
        )

    def _read(self, cache: TapCache, documents: Sequence[Document]) -> None:
        begun, tokens = time.monotonic(), 0
        while cache.num_read < len(documents):
            tokens += cache.read_next()
            rate = tokens / (time.monotonic() - begun)
            self._show("Reading it", cache.num_read, len(documents), f"{rate:.0f} tokens/s")

    def _planned_steps(self, num_windows: int) -> int:
        return max(1, round(self._config.epochs * num_windows / self._config.batch_windows))

    def _fit_to_time(self, trainer: HeadsTrainer, settings: TrainerConfig) -> HeadsTrainer:
        """With a time limit: as many steps as fit into what is left, by the speed of a few that are taken back."""
        config = self._config
        if config.minutes is None:
            self._run.remember("num_steps", settings.num_steps)
            return trainer
        begin = {name: tensor.clone() for name, tensor in trainer.tensors().items()}
        timings = [trainer.take_step().seconds for _ in range(_TIMED_STEPS)]
        left = 60 * config.minutes - (time.monotonic() - self._started)
        num_steps = max(1, round(left / float(np.median(timings))))
        self._run.remember("num_steps", num_steps)
        fresh = trainer.begun_anew(replace(settings, num_steps=num_steps))
        fresh.restore(begin, 0)
        return fresh

    def _note_step(self, metrics: StepMetrics, num_steps: int, best: float) -> None:
        self._run.log(kind="step", **state_of(metrics))
        correct = " ".join(f"{depth.correct:.2f}" for depth in metrics.depths)
        note = f"loss {metrics.loss:.3f}, right {correct}, {metrics.tokens / metrics.seconds:.0f} tokens/s"
        self._show("Training", metrics.step, num_steps, note + (f", measured {best:.2f}" if best else ""))

    def _write_heads(
        self, heads: HeadsModule, vocabulary: np.ndarray[Any, Any] | None, measured: MeasuredAcceptance, step: int
    ) -> None:
        header = HeadsHeader(
            heads=self._heads_config.to_json(),
            trunk=identify_trunk(self._checkpoint),
            recipe=self._recipe | {"step": step},
            measured={"tau": measured.tau, "survival": list(measured.survival), "prompts": "held-out text of its own"},
        )
        ids = None if vocabulary is None else vocabulary.astype(np.int32)
        write_heads(self._run.path / HEADS_NAME, header, _as_arrays(heads), ids)

    def _tap_key(self, layers: Sequence[int]) -> str:
        text = (self._run.path / "text" / "text.json").read_text(encoding="utf-8")
        content = f"{self._checkpoint.digest()} {json.loads(text)['settings']} {list(layers)}"
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _columns(taps: Sequence[int], layers: Sequence[int], width: int) -> slice:
    """Where the heads' taps lie among those kept: without a gap, since only the last layer may come on top."""
    first = layers.index(taps[0])
    assert tuple(layers[first : first + len(taps)]) == tuple(taps)
    return slice(first * width, (first + len(taps)) * width)


def _prompts_of(documents: Sequence[Document]) -> list[list[int]]:
    """What each document begins with, up to the first answer."""
    firsts = [(document, int(document.supervised.argmax())) for document in documents]
    return [document.tokens[:first].tolist() for document, first in firsts if first > 0]


def _as_arrays(heads: HeadsModule) -> dict[str, np.ndarray[Any, Any]]:
    return {name: weight.detach().float().numpy().copy() for name, weight in heads.own_weights().items()}


def _depth_lists(depths: Sequence[Any]) -> dict[str, list[float]]:
    return {name: [getattr(depth, name) for depth in depths] for name in ("correct", "acceptance", "loss")}
