"""What a model from scratch begins with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from headstart.architectures.config import TrunkConfig
from headstart.architectures.decoder import decoder_program
from headstart.architectures.weights import wanted_shapes

# small enough that a softmax over any vocabulary begins near to uniform
_EMBEDDING_SPREAD = 0.02

# what adds to the residual stream: the more of them there are, the less each
_RESIDUAL = ("attention.output", "mlp.down")


def initial_trunk(config: TrunkConfig, seed: int) -> dict[str, Tensor]:
    """Weights of a trunk by the names of its program, float32."""
    shapes = wanted_shapes(decoder_program(config)) | {"embedding": (config.vocab_size, config.hidden_size)}
    weights = {name: torch.empty(shape) for name, shape in shapes.items()}
    fill(weights, config.num_layers, torch.Generator().manual_seed(seed))
    return weights


@torch.no_grad()
def fill(weights: Mapping[str, Tensor], num_layers: int, generator: torch.Generator) -> None:
    """Fill weights in place: norms with 1, biases with 0, matrices so that widths of rows are kept.

    Args:
        weights: by the names of a program.
        num_layers: blocks in the residual stream.
        generator: for what is random.
    """
    for name, weight in weights.items():
        if name.endswith(".bias"):
            weight.zero_()
        elif weight.ndim == 1:
            weight.fill_(1.0)
        else:
            weight.normal_(0.0, _spread(name, weight.shape[1], num_layers), generator=generator)


def _spread(name: str, num_inputs: int, num_layers: int) -> float:
    if name.endswith("embedding"):  # the unembedding too
        return _EMBEDDING_SPREAD
    spread = 1.0 / math.sqrt(num_inputs)
    return spread / math.sqrt(2 * num_layers) if name.endswith(_RESIDUAL) else spread


def count_parameters(weights: Iterable[Tensor]) -> int:
    """Numbers in all weights."""
    return sum(weight.numel() for weight in weights)
