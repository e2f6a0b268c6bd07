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
from headstart.runtime.torch_runtime import CausalAttention, ChainAttention, Outcome, TextBatch, run_program, shifted

_BORROWED = "trunk."


@dataclass(frozen=True, slots=True, eq=False)
class DepthOutput:
    """What heads say at one depth.

    Attributes:
        depth: 1 or more.
        offset: row t guesses the token at t + offset: 1 for recurrent kinds, the depth for the others.
        hidden: [B, T, width], before the unembedding.
        unembedding: [V, width], its matrix; a parameter if the heads own one.
        valid: bool [B, T], rows whose chain lies within their document.
        features: [B, T, width], what was kept for the next depth, or `None`.
    """

    depth: int
    offset: int
    hidden: Tensor
    unembedding: Tensor
    valid: Tensor
    features: Tensor | None


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
        trunk_weights: Mapping[str, Tensor],
        vocabulary: Tensor | None = None,
    ) -> None:
        """Make the weights, zero but for norms; see `headstart.train.initialise`.

        Args:
            config: of the heads.
            trunk_config: of the trunk.
            trunk_weights: the trunk's, by name; those borrowed are shared, not copied, and never trained.
            vocabulary: int64 [V]; needed if and only if the config has a draft vocabulary.

        Raises:
            ConfigError: config, trunk and vocabulary do not fit together.
        """
        super().__init__()
        if (0 if vocabulary is None else len(vocabulary)) != config.draft_vocab_size:
            raise ConfigError(
                f"The heads guess {config.draft_vocab_size} tokens, but {0 if vocabulary is None else len(vocabulary)} "
                "are named."
            )
        self.config = config
        self.trunk_config = trunk_config
        self._trunk_weights = trunk_weights
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        self.program = heads_program(config, trunk_config)
        self._names: list[str] = []
        self._own = nn.ParameterList()
        self._borrowed: dict[str, Tensor] = {}
        for name, shape in self._shapes().items():
            if name.startswith(_BORROWED):
                self._borrowed[name] = self._borrow(name, trunk_weights)
            else:
                self._names.append(name)
                self._own.append(nn.Parameter(torch.ones(shape) if len(shape) == 1 else torch.zeros(shape)))

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for stage in self.program.stages:
            shapes |= wanted_shapes(stage.program)
        return shapes

    def _borrow(self, name: str, trunk_weights: Mapping[str, Tensor]) -> Tensor:
        own_name = name.removeprefix(_BORROWED)
        if own_name == "unembedding":
            matrix = trunk_weights["embedding" if self.trunk_config.tied else "unembedding"]
            return matrix.detach() if self.vocabulary is None else matrix.detach()[self.vocabulary]
        return trunk_weights[own_name].detach()

    def own_weights(self) -> dict[str, nn.Parameter]:
        """The trained weights by name, those of the heads file."""
        return dict(zip(self._names, self._own, strict=True))

    def all_weights(self) -> dict[str, Tensor]:
        """Own and borrowed weights by the names of the programs."""
        return {**self._borrowed, **self.own_weights()}

    def trunk_weight(self, name: str) -> Tensor:
        """One of the trunk's weights, by its own name."""
        return self._trunk_weights[name]

    def forward(self, batch: TextBatch, taps: Tensor, depth: int | None = None) -> Iterator[DepthOutput]:
        """What the heads say at depth 1, 2, ... with the text's own tokens fed in.

        Args:
            batch: the texts.
            taps: [B, T, len(taps) * hidden_size], of the same rows.
            depth: how deep; by default as the config says.
        """
        weights = self.all_weights()
        rotary = self.trunk_config.rotary
        reads: dict[int, Tensor] = {0: taps}
        first = CausalAttention(batch)
        chain: ChainAttention | None = None
        for level in range(1, (depth or self.config.depth) + 1):
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
            behind = level - 1 if self.program.recurrent else 0
            yield DepthOutput(
                depth=level,
                offset=1 if self.program.recurrent else level,
                hidden=outcome.hidden,
                unembedding=weights[outcome.unembedding],
                valid=(batch.documents >= 0) & (batch.positions >= behind),
                features=outcome.kept,
            )
