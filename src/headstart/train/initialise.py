"""What heads begin with: a prediction that is right about the linear part, and blocks that add nothing yet.

Heads with random weights spend a short training on what can be had at once. A projection of a recurrent kind begins
as the least-squares map from what it reads to the trunk's next state, which one pass over some text gives in closed
form; norms before an unembedding begin as the trunk's final norm; and the outputs of blocks begin at zero, so that
training starts from that prediction. What lies inside blocks is random, by a generator that is an argument: the trunk's
own weights have been tried there, and are too large to be moved by a short training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headstart.architectures.heads import Stage
from headstart.architectures.program import Linear, Program
from headstart.runtime.torch_runtime import CausalAttention, run_program, shifted
from headstart.train.heads_loss import TrainingBatch, learnt_rows
from headstart.train.heads_module import HeadsModule

# keeps the least-squares problem well posed, as a share of the inputs' mean square
_RIDGE = 1e-3

# matrices over what a recurrent head reads
_FITTED = ("projection", "fuse")

_ZERO_AT_FIRST = ("attention.output", "mlp.down", "bias")


@torch.no_grad()
def initialise(
    heads: HeadsModule,
    trunk_weights: Mapping[str, Tensor],
    batches: Sequence[TrainingBatch],
    generator: torch.Generator,
) -> None:
    """Fill the heads' own weights.

    Args:
        heads: of any kind. Medusa's begin as its paper says, at the trunk's own prediction.
        trunk_weights: by the names of the trunk's program.
        batches: some thousand rows of text; read by kinds with a projection only.
        generator: for what is random.
    """
    for name, weight in heads.own_weights().items():
        if name.endswith("final_norm"):
            weight.copy_(trunk_weights["final_norm"])
        elif name.endswith("unembedding"):
            full = trunk_weights["embedding" if heads.trunk_config.tied else "unembedding"]
            weight.copy_(full if heads.vocabulary is None else full[heads.vocabulary])
        elif name.endswith(_ZERO_AT_FIRST) or (name.endswith(".linear") and heads.config.kind == "medusa"):
            weight.zero_()
        elif weight.ndim == 1:
            weight.fill_(1.0)
        elif name.endswith(".linear"):
            weight.copy_(torch.eye(*weight.shape))
        else:
            weight.normal_(0.0, 1 / math.sqrt(weight.shape[1]), generator=generator)
    for stage in heads.program.stages:
        for index, operation in enumerate(stage.program.operations):
            if isinstance(operation, Linear) and operation.weight.endswith(_FITTED):
                up_to = replace(stage, program=Program(stage.program.operations[: index + 1], operation.out))
                heads.own_weights()[operation.weight].copy_(_least_squares(heads, up_to, batches))


def _least_squares(heads: HeadsModule, stage: Stage, batches: Sequence[TrainingBatch]) -> Tensor:
    """The map [out, in] from what a stage's last operation reads to the trunk's next state."""
    products, moments = torch.zeros(()), torch.zeros(())
    for batch in batches:
        rows = learnt_rows(batch, 1, 1, recurrent=True)
        targets = batch.trunk_states.float()
        if heads.config.kind != "eagle":  # whose module gives the state past the final norm, all others before it
            targets = targets / heads.trunk_weight("final_norm")
        state = shifted(batch.taps.float() if stage.reads == 0 else targets, batch.text)
        read = run_program(
            stage.program,
            heads.all_weights(),
            heads.trunk_config.rotary,
            batch.text,
            CausalAttention(batch.text),
            state,
        )
        inputs = read.hidden[rows]
        products = products + inputs.T @ inputs
        moments = moments + inputs.T @ targets[rows]
    ridge = _RIDGE * products.diagonal().mean() * torch.eye(len(products))
    return torch.linalg.solve(products + ridge, moments).T
