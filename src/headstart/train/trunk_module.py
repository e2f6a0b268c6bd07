"""A trunk as a PyTorch module, whose weights are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from headstart.architectures.config import TrunkConfig
from headstart.architectures.decoder import decoder_program
from headstart.architectures.program import Value
from headstart.runtime.torch_attention import CausalAttention
from headstart.runtime.torch_runtime import Surroundings, TextBatch, run_operations, run_program
from headstart.train.trunk_parts import Part, split_program


@dataclass(frozen=True, slots=True, eq=False)
class TrunkOutput:
    """What a trunk says of some texts.

    Attributes:
        states: [B, T, hidden_size], what its unembedding reads.
        taps: [B, T, taps * hidden_size], what heads read; `None` without taps.
    """

    states: Tensor
    taps: Tensor | None


class BlockModule(nn.Module):
    """One block of a trunk: a module of its own, so that what wraps modules can hold its weights apart."""

    def __init__(self, part: Part, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights."""
        super().__init__()
        self._part = part
        self._own = nn.ParameterList(nn.Parameter(weights[name].clone()) for name in part.weights)

    def weights(self) -> dict[str, nn.Parameter]:
        """By the names of the trunk's program."""
        return dict(zip(self._part.weights, self._own, strict=True))

    def forward(self, around: Surroundings, *inputs: Tensor) -> tuple[Tensor, ...]:
        """From the values that the part reads to those that it gives."""
        values = dict(zip(self._part.reads, inputs, strict=True))
        run_operations(self._part.operations, values, self.weights(), around)
        return tuple(values[value] for value in self._part.gives)


class TrunkModule(nn.Module):
    """The program of a trunk with weights of its own.

    Attributes:
        config: of the trunk.
        taps: layers that it gives out.
        blocks: in order; embedding, final norm and unembedding are the trunk's own.
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
        self._parts = split_program(self._program)
        self.blocks = nn.ModuleList(BlockModule(part, weights) for part in self._parts if part.is_block)
        in_blocks = {name for part in self._parts if part.is_block for name in part.weights}
        self._outer_names = [name for name in weights if name not in in_blocks]
        self._outer = nn.ParameterList(nn.Parameter(weights[name].clone()) for name in self._outer_names)

    def weights(self) -> dict[str, nn.Parameter]:
        """The trained weights, by the names of the program."""
        found = self._outer_weights()
        for block in self.blocks:
            found |= cast(BlockModule, block).weights()
        return found

    def _outer_weights(self) -> dict[str, nn.Parameter]:
        return dict(zip(self._outer_names, self._outer, strict=True))

    @property
    def unembedding(self) -> nn.Parameter:
        """[vocab_size, hidden_size]; of a tied trunk the embedding."""
        return self._outer_weights()["embedding" if self.config.tied else "unembedding"]

    def forward(self, text: TextBatch, weights: Mapping[str, Tensor] | None = None) -> TrunkOutput:
        """Run texts.

        Args:
            text: packed.
            weights: others than its own, such as these as a file will round them.
        """
        attend = CausalAttention(text)
        if weights is not None:
            outcome = run_program(self._program, weights, self.config.rotary, text, attend)
            return TrunkOutput(outcome.hidden, outcome.kept)
        around = Surroundings.of(self.config.rotary, text, attend)
        values: dict[Value, Tensor] = {}
        blocks = iter(self.blocks)
        for part in self._parts:
            if part.is_block:
                given = next(blocks)(around, *(values[value] for value in part.reads))
                values |= dict(zip(part.gives, given, strict=True))
            else:
                run_operations(part.operations, values, self._outer_weights(), around)
        kept = torch.cat([values[value] for value in self._program.kept], 2) if self._program.kept else None
        (last,) = self._parts[-1].gives
        return TrunkOutput(values[last], kept)

    @torch.no_grad()
    def rounded(self) -> dict[str, Tensor]:
        """The weights as a file in bfloat16 holds them."""
        return {name: weight.bfloat16() for name, weight in self.weights().items()}
