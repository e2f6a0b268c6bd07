"""What heads look like: everything on which implementations are known to differ is said, none of it implied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from headstart.architectures.config import TrunkConfig
from headstart.errors import ConfigError

HeadKind = Literal["parallel", "medusa", "sequential", "eagle", "eagle3"]
HiddenStage = Literal["pre_norm", "post_norm"]
ConcatOrder = Literal["hidden_embedding", "embedding_hidden"]
HeadForm = Literal["block", "linear"]

# kinds whose deeper guesses see the guesses before them
RECURRENT_KINDS: tuple[HeadKind, ...] = ("sequential", "eagle", "eagle3")

# choices that some kinds have no use for; they stand at their defaults there, so that a file promises nothing in vain
_READ_BY: Mapping[str, tuple[HeadKind, ...]] = {
    "recycled_stage": ("sequential", "eagle3"),
    "order": RECURRENT_KINDS,
    "num_layers": ("parallel", "medusa"),
    "form": ("parallel",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadsConfig:
    """Sizes and choices of heads.

    Attributes:
        kind: which file of this package makes them.
        depth: guesses ahead that they were trained for. Unrolled modules may be asked for more.
        taps: trunk layers whose outputs they read, ascending: 0 is the embedding, `num_layers` what the final norm
            gets.
        hidden_stage: whether the last tap passes the trunk's final norm before it is used.
        recycled_stage: whether what one depth hands to the next has passed the head's final norm (sequential, eagle3).
        order: which half of the joint input comes first (recurrent kinds).
        num_modules: modules with weights of their own; 1 with a depth above 1 is one module unrolled.
        num_layers: blocks of a module (parallel, medusa).
        form: whether a parallel head is a transformer block or a matrix.
        intermediate_size: width inside the gated MLP of a block.
        draft_vocab_size: tokens that can be guessed; 0 for the trunk's whole vocabulary.
        own_unembedding: whether they have one, or borrow the trunk's.
    """

    kind: HeadKind
    depth: int
    taps: tuple[int, ...]
    hidden_stage: HiddenStage
    recycled_stage: HiddenStage = "pre_norm"
    order: ConcatOrder = "embedding_hidden"
    num_modules: int = 1
    num_layers: int = 1
    form: HeadForm = "block"
    intermediate_size: int
    draft_vocab_size: int = 0
    own_unembedding: bool = False

    def __post_init__(self) -> None:
        """Refuse what no program can be made of.

        Raises:
            ConfigError: a choice is unknown or out of its range.
        """
        for name, allowed in (
            ("kind", HeadKind),
            ("hidden_stage", HiddenStage),
            ("recycled_stage", HiddenStage),
            ("order", ConcatOrder),
            ("form", HeadForm),
        ):
            if getattr(self, name) not in get_args(allowed):
                raise ConfigError(
                    f"Heads with {name} = {getattr(self, name)!r}: it must be one of {', '.join(get_args(allowed))}."
                )
        for name, most in (("depth", 64), ("num_modules", 64), ("num_layers", 16), ("intermediate_size", 2**20)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ConfigError(f"Heads with {name} = {value!r}: it must be a number from 1 to {most}.")
        for field in fields(self):
            name, value, usual = field.name, getattr(self, field.name), field.default
            if not self.reads(name) and value != usual:
                raise ConfigError(
                    f"{self.kind} heads with {name} = {value!r}: it means nothing to them, and must be {usual!r}."
                )
        if self.form == "linear" and self.num_layers != 1:
            raise ConfigError(f"Linear heads with num_layers = {self.num_layers}: a matrix has no layers. Leave it 1.")
        if not self.taps or any(type(tap) is not int or tap < 0 for tap in self.taps):
            raise ConfigError(f"Heads with taps = {self.taps!r}: name at least one layer of the trunk.")
        if list(self.taps) != sorted(set(self.taps)):
            raise ConfigError(f"Heads with taps = {self.taps!r}: they must ascend.")
        takes_several = self.kind == "eagle3" or (self.kind == "sequential" and self.num_modules == 1)
        if len(self.taps) != 1 and not takes_several:
            raise ConfigError(
                f"{self.kind} heads of {self.num_modules} modules read one layer of the trunk, not {len(self.taps)}."
            )
        if self.num_modules not in (1, self.depth):
            raise ConfigError(
                f"{self.num_modules} modules for a depth of {self.depth}: it must be one, or one for each depth."
            )
        if self.kind in ("parallel", "medusa") and self.num_modules != self.depth:
            raise ConfigError(f"{self.kind} heads need a module for each depth.")
        if self.kind in ("eagle", "eagle3") and self.num_modules != 1:
            raise ConfigError(f"{self.kind} heads are one module, unrolled.")
        if type(self.draft_vocab_size) is not int or self.draft_vocab_size < 0:
            raise ConfigError(f"Heads with draft_vocab_size = {self.draft_vocab_size!r}: it must be 0 or more.")

    @property
    def recurrent(self) -> bool:
        """Whether deeper guesses see the guesses before them."""
        return self.kind in RECURRENT_KINDS

    def reads(self, choice: str) -> bool:
        """Whether a field of this description means anything to heads of this kind."""
        return choice not in _READ_BY or self.kind in _READ_BY[choice]

    def check_trunk(self, trunk: TrunkConfig) -> None:
        """Refuse a trunk that these heads cannot read.

        Raises:
            ConfigError: a tap or the draft vocabulary lies beyond it.
        """
        if self.taps[-1] > trunk.num_layers:
            raise ConfigError(f"The heads read layer {self.taps[-1]} of a trunk that has {trunk.num_layers}.")
        if self.hidden_stage == "post_norm" and self.taps[-1] != trunk.num_layers:
            raise ConfigError(
                f"The heads read layer {self.taps[-1]} after the final norm, which follows layer {trunk.num_layers}."
            )
        if self.draft_vocab_size > trunk.vocab_size:
            raise ConfigError(f"The heads guess {self.draft_vocab_size} tokens; the trunk has {trunk.vocab_size}.")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "taps": list(self.taps)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeadsConfig:
        """From plain data; nothing may be missing or unknown, so that nothing is left to a default.

        Raises:
            ConfigError: the data is not that of heads.
        """
        names = {field.name for field in fields(cls)}
        if set(data) != names:
            odd = sorted(set(data) ^ names)
            raise ConfigError(f"The description of the heads lacks, or has one too many of: {', '.join(odd)}.")
        if not isinstance(data["taps"], list):
            raise ConfigError(f"Heads with taps = {data['taps']!r}: it must be a list of layers.")
        return cls(**{**data, "taps": tuple(data["taps"])})
