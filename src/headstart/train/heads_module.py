"""Heads as a PyTorch module: their own weights, those they borrow, and the walk over their depths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.weights import wanted_shapes
from headstart.errors import ConfigError
from headstart.runtime.torch_attention import CausalAttention, ChainAttention
from headstart.runtime.torch_runtime import Outcome, TextBatch, run_program, shifted

_BORROWED = "trunk."


@dataclass(frozen=True, slots=True, eq=False)
class DepthOutput:
    """What heads say at one depth.

    Attributes:
        depth: 1 or more.
        offset: row t guesses the token at t + offset: 1 for recurrent kinds, the depth for the others.
        hidden: [B, T, width], before the unembedding.
        unembedding: [V, width], its matrix; a parameter if the heads own one.
        valid: bool [B, T], see `chain_rows`.
        features: [B, T, width], what was kept for the next depth, or `None`.
    """

    depth: int
    offset: int
    hidden: Tensor
    unembedding: Tensor
    valid: Tensor
    features: Tensor | None


def guess_offset(config: HeadsConfig, depth: int) -> int:
    """How many places after its row a guess of this depth lies."""
    return 1 if config.recurrent else depth


def chain_rows(config: HeadsConfig, text: TextBatch, depth: int) -> Tensor:
    """bool [B, T]: rows of a document whose guess of this depth ends a chain that began in it.

    A chain of a recurrent kind has a row for each depth; row t of depth j began at row t - j + 1.
    """
    return (text.documents >= 0) & (text.positions >= (depth - 1 if config.recurrent else 0))


class HeadsModule(nn.Module):
    """Heads of any kind over a trunk whose states are given.

    Attributes:
        config: of the heads.
        trunk_config: of the trunk.
        vocabulary: int64 [V], the trunk's ids of the tokens that can be guessed, or `None` for all.
    """

    vocabulary: Tensor | None

    def __init__(
        self,
        config: HeadsConfig,
        trunk_config: TrunkConfig,
        trunk_weights: Mapping[str, Tensor] | None,
        vocabulary: Tensor | None = None,
    ) -> None:
        """Make the weights, zero but for norms; see `headstart.train.initialise`.

        Args:
            config: of the heads.
            trunk_config: of the trunk.
            trunk_weights: the trunk's, by name; those borrowed are shared, not copied, and get no gradient. `None` if
                every pass is given them.
            vocabulary: int64 [V], ascending; needed if and only if the config has a draft vocabulary.

        Raises:
            ConfigError: config, trunk and vocabulary do not fit together.
        """
        super().__init__()
        _check_vocabulary(config, trunk_config, vocabulary)
        self.config = config
        self.trunk_config = trunk_config
        self._trunk_weights = trunk_weights or {}
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        self.program = heads_program(config, trunk_config)
        self._names: list[str] = []
        self._own = nn.ParameterList()
        self._borrowed: dict[str, Tensor] = {}
        for name, shape in self._shapes().items():
            if not name.startswith(_BORROWED):
                self._names.append(name)
                self._own.append(nn.Parameter(torch.ones(shape) if len(shape) == 1 else torch.zeros(shape)))
        if trunk_weights is not None:
            self.borrow()

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for stage in self.program.stages:
            shapes |= wanted_shapes(stage.program)
        return shapes

    def borrow(self) -> None:
        """Take what is borrowed as the trunk has it now; needed again whenever the trunk was changed."""
        constant = {name: weight.detach() for name, weight in self._trunk_weights.items()}
        self._borrowed = self.borrowed_of(constant)

    def borrowed_of(self, trunk_weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is borrowed of a trunk's weights, by the names of the heads' programs; gradients go through it."""
        return {
            name: self._borrowed_weight(name.removeprefix(_BORROWED), trunk_weights)
            for name in self._shapes()
            if name.startswith(_BORROWED)
        }

    def _borrowed_weight(self, name: str, trunk_weights: Mapping[str, Tensor]) -> Tensor:
        if name != "unembedding":
            return trunk_weights[name]
        matrix = trunk_weights["embedding" if self.trunk_config.tied else "unembedding"]
        return matrix if self.vocabulary is None else matrix[self.vocabulary]

    def own_weights(self) -> dict[str, nn.Parameter]:
        """The trained weights by name, those of the heads file."""
        return dict(zip(self._names, self._own, strict=True))

    @torch.no_grad()
    def load_own(self, weights: Mapping[str, Tensor]) -> None:
        """Take the values of all trained weights, by the names of `own_weights`."""
        for name, weight in self.own_weights().items():
            weight.copy_(weights[name])

    def all_weights(self) -> dict[str, Tensor]:
        """Own and borrowed weights by the names of the programs."""
        return {**self._borrowed, **self.own_weights()}

    def trunk_weight(self, name: str) -> Tensor:
        """One of the trunk's weights, by its own name."""
        return self._trunk_weights[name]

    def forward(
        self,
        batch: TextBatch,
        taps: Tensor,
        depth: int | None = None,
        trunk_weights: Mapping[str, Tensor] | None = None,
    ) -> Iterator[DepthOutput]:
        """What the heads say at depth 1, 2, ... with the text's own tokens fed in.

        Args:
            batch: the texts.
            taps: [B, T, len(taps) * hidden_size], of the same rows.
            depth: how deep; by default as the config says.
            trunk_weights: the trunk's, which are trained with the heads; by default those of `borrow`, as constants.

        Raises:
            ConfigError: deeper than there are modules, and none is unrolled.
        """
        depth = depth or self.config.depth
        unrolls = self.program.recurrent and not self.program.stages[-1].on_text
        if depth > len(self.program.stages) and not unrolls:
            raise ConfigError(
                f"{self.config.kind} heads of {len(self.program.stages)} modules were asked for depth {depth}: only a "
                "module that is unrolled goes deeper. Ask for less, or make heads of more modules."
            )
        weights = self._weights(trunk_weights)
        rotary = self.trunk_config.rotary
        reads: dict[int, Tensor] = {0: taps}
        first = CausalAttention(batch)
        chain: ChainAttention | None = None
        for level in range(1, depth + 1):
            stage = self.program.stage(level)
            unrolled = self.program.recurrent and not stage.on_text
            if unrolled:
                chain = chain or ChainAttention(batch, first)
                chain.deepen()
            attend = chain if unrolled and chain is not None else first
            outcome: Outcome = run_program(
                stage.program, weights, rotary, batch, attend, shifted(reads[stage.reads], batch)
            )
            if stage.writes is not None and outcome.kept is not None:
                reads[stage.writes] = outcome.kept
            yield self._output(level, outcome, weights, batch)

    def alone(
        self, batch: TextBatch, taps: Tensor, depth: int, trunk_weights: Mapping[str, Tensor] | None = None
    ) -> DepthOutput:
        """What the heads say at one depth, without the others; for kinds that are not recurrent.

        Args:
            batch, taps, trunk_weights: as for `forward`.
            depth: 1 or more.
        """
        assert not self.program.recurrent, "deeper guesses of a recurrent kind need those before them"
        weights = self._weights(trunk_weights)
        program, rotary = self.program.stage(depth).program, self.trunk_config.rotary
        outcome = run_program(program, weights, rotary, batch, CausalAttention(batch), shifted(taps, batch))
        return self._output(depth, outcome, weights, batch)

    def _weights(self, trunk_weights: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
        if trunk_weights is None:
            return self.all_weights()
        return {**self.borrowed_of(trunk_weights), **self.own_weights()}

    def _output(self, depth: int, outcome: Outcome, weights: Mapping[str, Tensor], batch: TextBatch) -> DepthOutput:
        return DepthOutput(
            depth=depth,
            offset=guess_offset(self.config, depth),
            hidden=outcome.hidden,
            unembedding=weights[outcome.unembedding],
            valid=chain_rows(self.config, batch, depth),
            features=outcome.kept,
        )


def _check_vocabulary(config: HeadsConfig, trunk_config: TrunkConfig, vocabulary: Tensor | None) -> None:
    num_named = 0 if vocabulary is None else len(vocabulary)
    if num_named != config.draft_vocab_size:
        raise ConfigError(
            f"The heads guess {config.draft_vocab_size or 'all'} tokens of the vocabulary, but {num_named} are named. "
            "Name as many as the config says."
        )
    if vocabulary is None:
        return
    if (
        bool((vocabulary.diff() <= 0).any())
        or not 0 <= int(vocabulary[0]) <= int(vocabulary[-1]) < trunk_config.vocab_size
    ):
        raise ConfigError(
            f"The draft vocabulary must name ids from 0 to {trunk_config.vocab_size - 1}, each once and in ascending "
            "order. Sort it, or choose it anew."
        )
