"""What a pretraining is asked for, table by table of its TOML file. No torch is needed to refuse it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import FAMILIES
from headstart.architectures.rotary import RotaryConfig
from headstart.errors import ConfigError
from headstart.train.loss_mix import depth_weights
from headstart.train.pretrain.schedules import Curriculum, HeadsWeight, RateShape, active_heads

Precision = Literal["float32", "bfloat16"]
Tracker = Literal["tensorboard", "trackio", "wandb"]
TrainedHeads = Literal["parallel", "sequential"]

DEFAULT_STEPS = 1000
"""Optimiser steps of a run that neither a number nor a time limits."""

_UNLIMITED = 2**40

# on the weights that come out
_WITHOUT_EFFECT = (("train", "threads"), ("train", "save_every_s"), ("train", "track"))

# of `family`: what TrunkConfig has to be told beside sizes
_FEATURES: dict[str, dict[str, bool]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"head_norms": True},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The trunk: its sizes, or the checkpoint that it goes on from.

    Attributes:
        start: what `open_checkpoint` takes; training goes on from its weights, with its tokenizer, and nothing else of
            this table may be given. Empty for a model from scratch.
        family: "llama", "qwen2", "qwen3" or "mistral".
        hidden_size: width of the residual stream.
        num_layers: blocks; with `heads.equal_parameters` those of heads are among them.
        num_heads, num_kv_heads: of attention; keys are shared in equal groups, 0 for as many as queries have.
        intermediate_size: width inside the MLP; 0 for 8/3 of the hidden size, rounded up to a multiple of 32.
        context: positions that the model is made for; 0 for the training window.
        rope_theta: base of the rotary frequencies.
        norm_eps: of norms.
        tied: whether the unembedding is the embedding.
    """

    start: str = ""
    family: str = "llama"
    hidden_size: int = 256
    num_layers: int = 6
    num_heads: int = 8
    num_kv_heads: int = 0
    intermediate_size: int = 0
    context: int = 0
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tied: bool = False

    def __post_init__(self) -> None:
        if self.start:
            if changed := _changed(self, "start"):
                raise ConfigError(
                    f"model.{changed[0]} has no effect: model.start = {self.start!r} says what the model looks like. "
                    "Leave one of the two out."
                )
            return
        names = {family.name for family in FAMILIES}
        if self.family not in names:
            raise ConfigError(f"model.family = {self.family!r}: it must be one of {', '.join(sorted(names))}.")
        for name in ("hidden_size", "num_layers", "num_heads"):
            _require(getattr(self, name) >= 1, "model", name, getattr(self, name), "at least 1")
        for name in ("num_kv_heads", "intermediate_size", "context"):
            _require(getattr(self, name) >= 0, "model", name, getattr(self, name), "0 or more")
        for name in ("rope_theta", "norm_eps"):
            _require(_positive(getattr(self, name)), "model", name, getattr(self, name), "finite and above 0")
        _require(
            self.hidden_size % self.num_heads == 0, "model", "hidden_size", self.hidden_size,
            f"a multiple of num_heads, {self.num_heads}",
        )  # fmt: skip

    def trunk_config(self, vocab_size: int, window: int, removed_layers: int) -> TrunkConfig:
        """The trunk of a model from scratch.

        Args:
            vocab_size: of its tokenizer.
            window: of the training.
            removed_layers: blocks that it gives up for those of heads.

        Raises:
            ConfigError: no block is left, or the context is shorter than the window.
            UnsupportedError: sizes that kernels cannot run.
        """
        if removed_layers >= self.num_layers:
            raise ConfigError(
                f"model.num_layers = {self.num_layers}: with heads.equal_parameters the heads take {removed_layers} of "
                "them, and none would be left. Take more layers, or fewer heads."
            )
        context = self.context or window
        if context < window:
            raise ConfigError(
                f"model.context = {context}: windows of data.window = {window} tokens do not fit. Raise the one or "
                "lower the other."
            )
        head_dim = self.hidden_size // self.num_heads
        num_layers = self.num_layers - removed_layers
        return TrunkConfig(
            family=self.family,
            vocab_size=vocab_size,
            hidden_size=self.hidden_size,
            num_layers=num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads or self.num_heads,
            head_dim=head_dim,
            intermediate_size=self.intermediate_size or 32 * math.ceil(self.hidden_size * 8 / 3 / 32),
            norm_eps=self.norm_eps,
            max_context=context,
            rotary=RotaryConfig(theta=self.rope_theta, dim=head_dim),
            windows=(0,) * num_layers,
            tied=self.tied,
            **_FEATURES[self.family],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainHeads:
    """What is predicted beside the next token.

    Attributes:
        n: tokens predicted at every position; 1 is next-token training, and nothing else here has an effect then.
        kind: "parallel" (a block for each depth on what the trunk's last block reads) or "sequential" (a module for
            each depth on the state of the one before).
        unrolled: whether a sequential module is one for all depths.
        equal_parameters: whether the trunk gives up a block for each module, so that n costs no parameters.
        depth_weights: how depths weigh, see `headstart.train.loss_mix.depth_weights`.
        weight: of all heads together beside the trunk's own loss: a number, or numbers by share of the run, such as
            "0.3,0.1@0.67": 0.1 from two thirds of the steps on.
        curriculum: "none", "forward" (one more head with each n-th of the run) or "reverse" (one less).
        own_unembedding: whether each parallel head has an unembedding, as the byte models of the source have.

    Source: Gloeckle et al. 2404.19737 (parallel); DeepSeek-AI 2412.19437, section 2.2 (sequential, weights by step);
    2505.22757 (curriculum).
    """

    n: int = 4
    kind: TrainedHeads = "parallel"
    unrolled: bool = False
    equal_parameters: bool = False
    depth_weights: str = "constant"
    weight: str = "1"
    curriculum: Curriculum = "none"
    own_unembedding: bool = False

    def __post_init__(self) -> None:
        _require(1 <= self.n <= 64, "heads", "n", self.n, "from 1 to 64")
        _one_of("heads", "kind", self.kind, get_args(TrainedHeads))
        _one_of("heads", "curriculum", self.curriculum, get_args(Curriculum))
        if self.n == 1 and (changed := [name for name in _changed(self, "n") if name != "kind"]):
            raise ConfigError(
                f"heads.{changed[0]} has no effect with heads.n = 1, which is next-token training. Leave it out, or "
                "predict more."
            )
        for name, kind in (("unrolled", "sequential"), ("own_unembedding", "parallel")):
            if getattr(self, name) and self.kind != kind:
                raise ConfigError(f"heads.{name} is for {kind} heads and has no effect on {self.kind} ones.")
        if self.n > 1:
            depth_weights(self.depth_weights, self.depth)
        HeadsWeight.parse(self.weight)

    @property
    def depth(self) -> int:
        """Guesses beyond the next token."""
        return self.n - 1

    @property
    def num_modules(self) -> int:
        """Modules with weights of their own."""
        return min(1, self.depth) if self.unrolled else self.depth

    @property
    def removed_layers(self) -> int:
        """Blocks that the trunk gives up."""
        return self.num_modules if self.equal_parameters else 0

    def heads_config(self, trunk: TrunkConfig) -> HeadsConfig | None:
        """What the heads of a trunk look like; `None` for next-token training."""
        if self.n == 1:
            return None
        return HeadsConfig(
            kind=self.kind,
            depth=self.depth,
            # the trunk's last block is the first head's own, so that all heads stand on the same states
            taps=(trunk.num_layers - 1 if self.kind == "parallel" else trunk.num_layers,),
            hidden_stage="pre_norm",
            num_modules=self.num_modules,
            intermediate_size=trunk.intermediate_size,
            own_unembedding=self.own_unembedding,
        )

    def weights_at(self, step: int, num_steps: int) -> tuple[float, ...]:
        """Weights of the depths that are trained at a step, 1, 2, ...; fewer than `depth` during a curriculum."""
        if self.n == 1:
            return ()
        factor = HeadsWeight.parse(self.weight).at(step, num_steps)
        active = active_heads(self.curriculum, self.n, step, num_steps) - 1
        return tuple(factor * weight for weight in depth_weights(self.depth_weights, self.depth)[:active])


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
        _require(self.window >= 2, "data", "window", self.window, "at least 2")
        _require(self.validation_windows >= 1, "data", "validation_windows", self.validation_windows, "at least 1")


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
        ema: decay of the moving average of weights that is written and judged; 0 for none.
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
            _require(getattr(self, name) >= 1, "train", name, getattr(self, name), "at least 1")
        for name in ("steps", "micro_windows", "validate_every", "measure_every", "seed", "threads"):
            _require(getattr(self, name) >= 0, "train", name, getattr(self, name), "0 or more")
        for name in ("learning_rate", "max_gradient_norm"):
            _require(_positive(getattr(self, name)), "train", name, getattr(self, name), "finite and above 0")
        for name in ("minutes", "weight_decay", "save_every_s"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value >= 0, "train", name, value, "finite and not negative")
        for name in ("warmup_share", "decay_share", "final_share"):
            _require(0 <= getattr(self, name) <= 1, "train", name, getattr(self, name), "between 0 and 1")
        _require(0 <= self.ema < 1, "train", "ema", self.ema, "at least 0 (off) and below 1")
        _require(
            self.spike_factor == 0 or self.spike_factor > 1, "train", "spike_factor", self.spike_factor,
            "above 1, or 0 for no limit",
        )  # fmt: skip
        _one_of("train", "schedule", self.schedule, get_args(RateShape))
        _one_of("train", "precision", self.precision, get_args(Precision))
        _one_of("train", "device", self.device, ("auto", "cpu", "cuda"))
        for tracker in self.track:
            _one_of("train", "track", tracker, get_args(Tracker))

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


def _changed(config: Any, *but: str) -> list[str]:
    """Fields that differ from their defaults."""
    fields = config.__dataclass_fields__.values()
    return [entry.name for entry in fields if entry.name not in but and getattr(config, entry.name) != entry.default]


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _one_of(table: str, name: str, value: str, allowed: Sequence[str]) -> None:
    _require(value in allowed, table, name, value, f"one of {', '.join(allowed)}")


def _require(holds: bool, table: str, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{table}.{name} = {value!r}: it must be {allowed}.")
