"""What a graft is asked for: the heads, their text, and how long to train. No torch is needed to refuse it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadKind, HeadsConfig
from headstart.architectures.heads.config import RECURRENT_KINDS, HeadForm
from headstart.errors import ConfigError
from headstart.train.checks import changed_fields
from headstart.train.composition import DistillConfig
from headstart.train.loss_mix import LossMix, depth_weights

Learn = Literal["all", "answers"]

TEXT_TOKENS = 2_000_000
"""Supervised tokens of a text that neither a number nor a time limits."""

EPOCHS = 4.0
"""Times that a text is gone through if neither a number nor a time says otherwise."""

_UNLIMITED = 2**40

# Whole shards are written: a small text, or one that a clock may end, has small ones, and large ones are fewer files.
_SMALL_TEXT = 250_000
_FEW_DOCUMENTS, _MANY_DOCUMENTS = 32, 128


@dataclass(frozen=True, kw_only=True, slots=True)
class GraftConfig:
    """What is grafted, and how.

    Attributes:
        kind: of heads.
        depth: guesses ahead that they are trained for.
        taps: trunk layers that they read; by default the last, for eagle3 three spread over the trunk.
        draft_vocab_size: tokens that can be guessed; 0, or as many as the trunk has, for all.
        num_layers: blocks of a module (medusa, parallel).
        form: what a parallel head is: "block", or "linear", a matrix.
        unrolled: whether one module serves every depth (sequential); eagle's and eagle3's always does.
        own_unembedding: whether heads have unembeddings that are trained, beginning as the trunk's rows.
        minutes: for everything together, over all the times that the run is taken up. A third of it or less goes
            into the text, the rest into as many steps as fit.
        text_tokens: supervised tokens that the model writes for them; with `minutes`, at most. By default
            `TEXT_TOKENS`, or with `minutes` as many as fit.
        epochs: times that the text is gone through; with `minutes`, at most. By default `EPOCHS`, or with `minutes` as
            many as fit.
        first_depth_share: share of the steps, from the first, that train depth 1 alone, in [0, 1); unrolled modules
            only. They cost less, and what is learnt there serves every depth.
        learn: what heads learn to guess: "all" of the text, the prompts included, whose targets are the trunk's own
            distribution as well; or its "answers" alone. They are judged by answers in any case.
        window: tokens of a training window, and of a document at most.
        loss: terms of the loss, see `LossMix.parse`.
        depth_weights: how the losses of depths weigh, see `headstart.train.loss_mix.depth_weights`.
        feature_weight: of the regression on the trunk's next state (eagle), on top of the loss.
        learning_rate: at its highest.
        weight_decay: of matrices, in units of the learning rate. A text that is gone through many times wants much.
        batch_windows: windows of a step.
        checkpoints: times that the heads are measured, and the best kept, spread over the run; with `minutes` fewer if
            they would take too much of it.
        seed: of everything random.
        threads: CPU threads; by default as many as the process may use. The same threads give the same bits.

    Raises:
        ConfigError: a value is out of its range or would have no effect.
    """

    kind: HeadKind
    depth: int = 4
    taps: tuple[int, ...] | None = None
    draft_vocab_size: int = 8192
    num_layers: int = 1
    form: HeadForm = "block"
    unrolled: bool = True
    own_unembedding: bool = False
    minutes: float | None = None
    text_tokens: int | None = None
    epochs: float | None = None
    first_depth_share: float = 0.0
    learn: Learn = "all"
    window: int = 1024
    loss: str = "kl"
    depth_weights: str = "decay:0.8"
    feature_weight: float = 0.0
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    batch_windows: int = 4
    checkpoints: int = 8
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        counts = ("depth", "text_tokens", "batch_windows", "checkpoints", "threads")
        for name, least in (*((name, 1) for name in counts), ("window", 32)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} = {value}: it must be at least {least}.")
        for name in ("epochs", "minutes", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} = {value}: it must be a finite number above 0.")
        if self.learn not in get_args(Learn):
            raise ConfigError(f"learn = {self.learn!r}: it must be one of {', '.join(get_args(Learn))}.")
        for name in ("feature_weight", "weight_decay"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} = {value}: it must be finite and not negative.")
        if not 0.0 <= self.first_depth_share < 1.0:
            raise ConfigError(f"first_depth_share = {self.first_depth_share}: it must be at least 0 and below 1.")
        self._require_meaning()
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"seed = {self.seed}: it must be between 0 and 2**64 - 1.")
        LossMix.parse(self.loss)
        depth_weights(self.depth_weights, self.depth)

    def _require_meaning(self) -> None:
        """Refuse what the kind has no use for."""
        if self.form not in get_args(HeadForm):
            raise ConfigError(f"form = {self.form!r}: it must be one of {', '.join(get_args(HeadForm))}.")
        changed = changed_fields(self)
        for name, has_meaning in (
            ("unrolled", self.kind == "sequential" and self.depth > 1),
            ("form", self.kind == "parallel" and self.num_layers == 1),
        ):
            if name in changed and not has_meaning:
                raise ConfigError(
                    f"{name} = {getattr(self, name)!r} has no meaning for {self.kind} heads of depth {self.depth} and "
                    f"{self.num_layers} layers. Leave it out."
                )
        is_unrolled = self.kind in RECURRENT_KINDS and self.unrolled and self.depth > 1
        if self.first_depth_share and not is_unrolled:
            raise ConfigError(
                f"first_depth_share = {self.first_depth_share} has no meaning for {self.kind} heads of depth "
                f"{self.depth}: it is for one module that is unrolled. Leave it out."
            )
        if self.feature_weight and self.kind != "eagle":
            raise ConfigError(
                f"feature_weight = {self.feature_weight} has no meaning for {self.kind} heads: only eagle's give back "
                "the trunk's own state. Leave it out."
            )
        if self.num_layers != 1 and self.kind not in ("medusa", "parallel"):
            raise ConfigError(
                f"num_layers = {self.num_layers} has no effect on {self.kind} heads, whose module is one block. "
                "Leave it out."
            )

    def heads_config(self, trunk: TrunkConfig) -> HeadsConfig:
        """The heads for a trunk.

        Raises:
            ConfigError: the trunk has not what they would read or guess.
        """
        last = trunk.num_layers
        spread = tuple(sorted({max(1, last // 3), max(1, 2 * last // 3), last}))
        config = HeadsConfig(
            kind=self.kind,
            depth=self.depth,
            taps=self.taps or (spread if self.kind == "eagle3" else (last,)),
            hidden_stage="post_norm" if self.kind in ("medusa", "eagle") else "pre_norm",
            num_modules=1 if self.kind in RECURRENT_KINDS and self.unrolled else self.depth,
            num_layers=self.num_layers,
            form=self.form,
            own_unembedding=self.own_unembedding,
            intermediate_size=trunk.intermediate_size,
            draft_vocab_size=0 if self.draft_vocab_size >= trunk.vocab_size else self.draft_vocab_size,
        )
        config.check_trunk(trunk)
        return config

    def distill_config(self, max_context: int) -> DistillConfig:
        """How the model writes the text.

        Args:
            max_context: of the trunk.
        """
        wanted = self.text_tokens or (TEXT_TOKENS if self.minutes is None else _UNLIMITED)
        in_small_shards = self.minutes is not None or wanted < _SMALL_TEXT
        return DistillConfig(
            num_tokens=wanted,
            seed=self.seed,
            document_tokens=min(self.window, max_context),
            shard_documents=_FEW_DOCUMENTS if in_small_shards else _MANY_DOCUMENTS,
        )

    def num_steps(self, num_windows: int) -> int:
        """Steps that the epochs come to; `minutes` may allow fewer."""
        if self.epochs is None and self.minutes is not None:
            return _UNLIMITED
        return max(1, round((self.epochs or EPOCHS) * num_windows / self.batch_windows))

    def weights_of_depths(self) -> Sequence[float]:
        """Of depth 1, 2, ..."""
        return depth_weights(self.depth_weights, self.depth)

    def settings(self) -> dict[str, Any]:
        """What a run is resumed with or not at all: all that its outcome depends on, as JSON would hold it."""
        settings = asdict(self)
        del settings["threads"]
        return settings | {"taps": None if self.taps is None else list(self.taps)}
