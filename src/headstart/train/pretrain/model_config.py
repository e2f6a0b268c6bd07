"""What is trained: the tables model and heads of a run's TOML file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.architectures.heads.config import HeadForm
from headstart.architectures.reading import FAMILIES
from headstart.architectures.rotary import RotaryConfig
from headstart.errors import ConfigError
from headstart.train.checks import changed_fields, is_positive, require_in_range, require_one_of
from headstart.train.loss_mix import depth_weights
from headstart.train.pretrain.schedules import Curriculum, HeadsWeight, active_heads

TrainedHeads = Literal["parallel", "sequential"]

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
            if changed := changed_fields(self, "start"):
                raise ConfigError(
                    f"model.{changed[0]} has no effect: model.start = {self.start!r} says what the model looks like. "
                    "Leave one of the two out."
                )
            return
        names = {family.name for family in FAMILIES}
        if self.family not in names:
            raise ConfigError(f"model.family = {self.family!r}: it must be one of {', '.join(sorted(names))}.")
        for name in ("hidden_size", "num_layers", "num_heads"):
            require_in_range(getattr(self, name) >= 1, "model", name, getattr(self, name), "at least 1")
        for name in ("num_kv_heads", "intermediate_size", "context"):
            require_in_range(getattr(self, name) >= 0, "model", name, getattr(self, name), "0 or more")
        for name in ("rope_theta", "norm_eps"):
            require_in_range(is_positive(getattr(self, name)), "model", name, getattr(self, name), "finite and above 0")
        require_in_range(
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
        form: what a parallel head is: "block", or "linear", a matrix on what the trunk's final norm reads. Matrices
            take next to no time, and guess worse.
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
    form: HeadForm = "block"
    unrolled: bool = False
    equal_parameters: bool = False
    depth_weights: str = "constant"
    weight: str = "1"
    curriculum: Curriculum = "none"
    own_unembedding: bool = False

    def __post_init__(self) -> None:
        require_in_range(1 <= self.n <= 64, "heads", "n", self.n, "from 1 to 64")
        require_one_of("heads", "kind", self.kind, get_args(TrainedHeads))
        require_one_of("heads", "curriculum", self.curriculum, get_args(Curriculum))
        if self.n == 1 and (changed := [name for name in changed_fields(self, "n") if name != "kind"]):
            raise ConfigError(
                f"heads.{changed[0]} has no effect with heads.n = 1, which is next-token training. Leave it out, or "
                "predict more."
            )
        require_one_of("heads", "form", self.form, get_args(HeadForm))
        changed = changed_fields(self)
        for name, kind in (("unrolled", "sequential"), ("own_unembedding", "parallel"), ("form", "parallel")):
            if name in changed and self.kind != kind:
                raise ConfigError(f"heads.{name} is for {kind} heads and has no effect on {self.kind} ones.")
        if self.equal_parameters and self.form == "linear":
            raise ConfigError("heads.equal_parameters takes a block for each head, and linear heads have none.")
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
        # beside blocks the trunk's last one is the first head's own, so that all heads stand on the same states
        beside_last = self.kind == "parallel" and self.form == "block"
        return HeadsConfig(
            kind=self.kind,
            depth=self.depth,
            form=self.form,
            taps=(trunk.num_layers - beside_last,),
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
