"""A trunk as a PyTorch module, whose weights are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart.architectures.config import TrunkConfig
from headstart.architectures.decoder import decoder_program
from headstart.runtime.torch_runtime import CausalAttention, TextBatch, run_program


@dataclass(frozen=True, slots=True, eq=False)
class TrunkOutput:
    """What a trunk says of some texts.

    Attributes:
        states: [B, T, hidden_size], what its unembedding reads.
        taps: [B, T, taps * hidden_size], what heads read; `None` without taps.
    """

    states: Tensor
    taps: Tensor | None


class TrunkModule(nn.Module):
    """The program of a trunk with weights of its own.

    Attributes:
        config: of the trunk.
        taps: layers that it gives out.
    """

    def __init__(self, config: TrunkConfig, weights: Mapping[str, Tensor], taps: tuple[int, ...]) -> None:
        """Copy the weights.

        Args:
            config: of the trunk.
            weights: by the names of its program.
            taps: layers whose outputs heads read; none for a trunk alone.
        """
        super().__init__()
        self.config, self.taps = config, taps
        self._program = decoder_program(config, taps)
        self._names = list(weights)
        self._own = nn.ParameterList(nn.Parameter(weight.clone()) for weight in weights.values())

    def weights(self) -> dict[str, nn.Parameter]:
        """The trained weights, by the names of the program."""
        return dict(zip(self._names, self._own, strict=True))

    @property
    def unembedding(self) -> nn.Parameter:
        """[vocab_size, hidden_size]; of a tied trunk the embedding."""
        return self.weights()["embedding" if self.config.tied else "unembedding"]

    def forward(self, text: TextBatch, weights: Mapping[str, Tensor] | None = None) -> TrunkOutput:
        """Run texts.

        Args:
            text: packed.
            weights: others than its own, such as these as a file will round them.
        """
        outcome = run_program(self._program, weights or self.weights(), self.config.rotary, text, CausalAttention(text))
        return TrunkOutput(outcome.hidden, outcome.kept)

    @torch.no_grad()
    def rounded(self) -> dict[str, Tensor]:
        """The weights as a file in bfloat16 holds them."""
        return {name: weight.bfloat16() for name, weight in self.weights().items()}
