"""One stage of heads, and the steps that several kinds have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.program import Attention, Builder, Program, Value


@dataclass(frozen=True, slots=True)
class Stage:
    """A program, and which states it reads and keeps.

    Attributes:
        program: of one depth.
        reads: the store its states come from: 0 holds the trunk's taps.
        writes: the store it keeps its own in, or `None`.
        on_text: whether it runs over every token of the text, since later rows read what it stores; if not, only
            where guesses are wanted.
    """

    program: Program
    reads: int
    writes: int | None
    on_text: bool

    @property
    def last_layer(self) -> int:
        """The highest cache layer it stores to; -1 if none."""
        layers = (op.layer for op in self.program.operations if isinstance(op, Attention))
        return max(layers, default=-1)


def block_config(config: HeadsConfig, trunk: TrunkConfig) -> TrunkConfig:
    """The trunk's block with the heads' own width inside."""
    return replace(trunk, intermediate_size=config.intermediate_size)


def trunk_hidden(build: Builder, config: HeadsConfig, trunk: TrunkConfig) -> Value:
    """The last tap, past the trunk's final norm if the heads want it so."""
    hidden = build.state(trunk.hidden_size, trunk.hidden_size * (len(config.taps) - 1))
    if config.hidden_stage == "post_norm":
        hidden = build.rms_norm(hidden, "trunk.final_norm", trunk.norm_eps)
    return hidden


def normed_taps(build: Builder, config: HeadsConfig, trunk: TrunkConfig, norms: str) -> Value:
    """All taps side by side, each normed for itself, since their sizes differ by orders of magnitude."""
    width = trunk.hidden_size
    last = len(config.taps) - 1
    parts = [build.state(width, width * index) for index in range(last)] + [trunk_hidden(build, config, trunk)]
    return build.concat(*(build.rms_norm(part, f"{norms}.{index}", trunk.norm_eps) for index, part in enumerate(parts)))


def joined(build: Builder, config: HeadsConfig, hidden: Value, embedding: Value) -> Value:
    """The two halves of a recurrent head's input, in the order that its weights were trained with."""
    return build.concat(embedding, hidden) if config.order == "embedding_hidden" else build.concat(hidden, embedding)


def unembed(build: Builder, config: HeadsConfig, trunk: TrunkConfig, x: Value, own: str = "unembedding") -> Value:
    """Logits over the draft vocabulary, of the wanted rows."""
    name = own if config.own_unembedding else "trunk.unembedding"
    return build.linear(x, name, config.draft_vocab_size or trunk.vocab_size)
