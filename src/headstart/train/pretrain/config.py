"""What a pretraining is asked for, table by table of its TOML file. No torch is needed to refuse it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from headstart.errors import ConfigError
from headstart.train.checks import is_positive, require_in_range, require_one_of
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads
from headstart.train.pretrain.schedules import RateShape

Precision = Literal["float32", "bfloat16"]
Tracker = Literal["tensorboard", "trackio", "wandb"]

DEFAULT_STEPS = 1000
"""Optimiser steps of a run that neither a number nor a time limits."""

_UNLIMITED = 2**40

# on the weights that come out
_WITHOUT_EFFECT = (("train", "threads"), ("train", "save_every_s"), ("train", "track"))


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """The text.

    Attributes:
        path: a folder that `headstart data` prepared; or empty, and `sources` are prepared for this run.
        sources: as `headstart data --source` takes them, such as "stdlib" or "tree:FOLDER:*.py".
        tokenizer: "bytes", "bpe:SIZE", or a model's folder; not with `path`, whose tokens are made already.
        window: tokens of a training window.
        validation_windows: windows that are judged, fixed for the run.
    """

    path: str = ""
    sources: tuple[str, ...] = ()
    tokenizer: str = ""
    window: int = 256
    validation_windows: int = 32

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.sources):
            raise ConfigError(
                f"data.path = {self.path!r} and data.sources = {list(self.sources)}: give the folder of a prepared "
                'corpus, or sources that are prepared for this run, such as sources = ["stdlib"]; one of the two.'
            )
        if self.path and self.tokenizer:
            raise ConfigError(
                f"data.tokenizer = {self.tokenizer!r} has no effect: the corpus in {self.path} has its tokens already. "
                "Leave it out."
            )
        require_in_range(self.window >= 2, "data", "window", self.window, "at least 2")
        require_in_range(
            self.validation_windows >= 1, "data", "validation_windows", self.validation_windows, "at least 1"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How it is trained.

    Attributes:
        steps: of the optimiser; 0 for as many as `minutes` allow, or `DEFAULT_STEPS`.
        minutes: for training, over all the times that the run is taken up; 0 for no limit.
        batch_windows: windows of a step.
        micro_windows: windows that are run at once; 0 for all of a step. Gradients are summed over them.
        learning_rate: at its highest.
        schedule: "cosine", "linear", "wsd" (falls in the last `decay_share`) or "constant".
        warmup_share: of the steps, in which the rate rises.
        decay_share: of the steps, in which the rate of "wsd" falls.
        final_share: of the highest rate, at the end.
        weight_decay: of matrices.
        max_gradient_norm: gradients are scaled down to it.
        ema: decay of the moving average of weights that is written and judged; 0 for none. After t steps it is at
            most (1 + t) / (10 + t), so that the first weights are soon forgotten.
        precision: of products: "float32" or "bfloat16". Weights and their optimiser are float32.
        device: "cpu", "cuda", or "auto" for cuda if there is one.
        spike_factor: a step whose loss or gradient is above so many times the recent median is skipped; 0 for no limit.
        max_skipped: steps that may be skipped one after the other.
        validate_every, measure_every: steps; 0 for a twentieth and a fourth of the run. Measured is what the native
            engine accepts.
        save_every_s: seconds from one state to the next.
        track: where metrics go beside metrics.jsonl: "tensorboard", "trackio", "wandb".
        seed: of everything random.
        threads: of the CPU; 0 for as many as the process may use. The same threads give the same bits.
    """

    steps: int = 0
    minutes: float = 0.0
    batch_windows: int = 16
    micro_windows: int = 0
    learning_rate: float = 1e-3
    schedule: RateShape = "cosine"
    warmup_share: float = 0.05
    decay_share: float = 0.2
    final_share: float = 0.05
    weight_decay: float = 0.1
    max_gradient_norm: float = 1.0
    ema: float = 0.0
    precision: Precision = "float32"
    device: str = "auto"
    spike_factor: float = 10.0
    max_skipped: int = 10
    validate_every: int = 0
    measure_every: int = 0
    save_every_s: float = 60.0
    track: tuple[Tracker, ...] = ()
    seed: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_windows", "max_skipped"):
            require_in_range(getattr(self, name) >= 1, "train", name, getattr(self, name), "at least 1")
        require_in_range(0 <= self.seed < 1 << 32, "train", "seed", self.seed, "between 0 and 2**32 - 1")
        for name in ("steps", "micro_windows", "validate_every", "measure_every", "threads"):
            require_in_range(getattr(self, name) >= 0, "train", name, getattr(self, name), "0 or more")
        for name in ("learning_rate", "max_gradient_norm"):
            require_in_range(is_positive(getattr(self, name)), "train", name, getattr(self, name), "finite and above 0")
        for name in ("minutes", "weight_decay", "save_every_s"):
            value = getattr(self, name)
            require_in_range(math.isfinite(value) and value >= 0, "train", name, value, "finite and not negative")
        for name in ("warmup_share", "decay_share", "final_share"):
            require_in_range(0 <= getattr(self, name) <= 1, "train", name, getattr(self, name), "between 0 and 1")
        require_in_range(0 <= self.ema < 1, "train", "ema", self.ema, "at least 0 (off) and below 1")
        require_in_range(
            self.spike_factor == 0 or self.spike_factor > 1, "train", "spike_factor", self.spike_factor,
            "above 1, or 0 for no limit",
        )  # fmt: skip
        require_one_of("train", "schedule", self.schedule, get_args(RateShape))
        require_one_of("train", "precision", self.precision, get_args(Precision))
        require_one_of("train", "device", self.device, ("auto", "cpu", "cuda"))
        for tracker in self.track:
            require_one_of("train", "track", tracker, get_args(Tracker))

    @property
    def max_steps(self) -> int:
        """Steps; `minutes` may allow fewer."""
        return self.steps or (_UNLIMITED if self.minutes else DEFAULT_STEPS)

    @property
    def windows_at_once(self) -> int:
        """Windows of a micro-batch."""
        return min(self.micro_windows or self.batch_windows, self.batch_windows)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig:
    """A whole run.

    Attributes:
        model, heads, data, train: see their classes.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    heads: PretrainHeads = field(default_factory=PretrainHeads)
    data: DataConfig
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model.start and self.heads.equal_parameters:
            raise ConfigError(
                f"heads.equal_parameters takes layers off the trunk, but model.start = {self.model.start!r} has all "
                "of its own. Leave one of the two out."
            )
        if self.model.start and self.data.tokenizer:
            raise ConfigError(
                f"data.tokenizer = {self.data.tokenizer!r} has no effect: model.start has its tokenizer. Leave it out."
            )

    def settings(self) -> dict[str, Any]:
        """What a run is resumed with or not at all, {"heads.n": 4, ...} as JSON would hold it.

        What cannot change its outcome is left out.
        """
        return {
            f"{table}.{name}": list(value) if isinstance(value, tuple) else value
            for table in ("model", "heads", "data", "train")
            for name, value in asdict(getattr(self, table)).items()
            if (table, name) not in _WITHOUT_EFFECT
        }
