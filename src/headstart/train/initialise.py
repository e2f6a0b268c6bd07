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
from headstart.runtime.torch_attention import CausalAttention
from headstart.runtime.torch_runtime import run_program, shifted
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
    for name, stages in _fitted_weights(heads).items():
        heads.own_weights()[name].copy_(_least_squares(heads, stages, batches))


def _fitted_weights(heads: HeadsModule) -> dict[str, list[Stage]]:
    """Each projection, with the stages it is part of, cut off after it: an unrolled module has it in two."""
    found: dict[str, list[Stage]] = {}
    for stage in heads.program.stages:
        for index, operation in enumerate(stage.program.operations):
            if isinstance(operation, Linear) and operation.weight.endswith(_FITTED):
                up_to = replace(stage, program=Program(stage.program.operations[: index + 1], operation.out))
                found.setdefault(operation.weight, []).append(up_to)
    return found


def _least_squares(heads: HeadsModule, stages: Sequence[Stage], batches: Sequence[TrainingBatch]) -> Tensor:
    """The map [out, in] that suits all stages: from what their last operation reads to the trunk's next state."""
    products, moments = torch.zeros(()), torch.zeros(())
    for batch in batches:
        rows = learnt_rows(heads.config, batch, 1)
        targets = _target_states(heads, batch)
        for stage in stages:
            inputs = _read_by(heads, stage, batch)[rows]
            products = products + inputs.T @ inputs
            moments = moments + inputs.T @ targets[rows]
    ridge = _RIDGE * products.diagonal().mean() * torch.eye(len(products), dtype=products.dtype)
    solution: Tensor = torch.linalg.solve(products + ridge, moments)
    return solution.T


def _target_states(heads: HeadsModule, batch: TrainingBatch) -> Tensor:
    """What a module's output is to be: EAGLE's the trunk's state past its final norm, all others' the one before."""
    states = _wide(batch.trunk_states)
    if heads.config.kind == "eagle":
        return states
    norm = heads.trunk_weight("final_norm").to(states.dtype)
    # only the direction of a state survives the norm; a channel that the norm drops may be anything
    return torch.where(norm == 0, 0.0, states / norm)


def _read_by(heads: HeadsModule, stage: Stage, batch: TrainingBatch) -> Tensor:
    """What a stage's last operation reads, if the depth before guessed every state right."""
    if stage.reads == 0:
        state = _wide(batch.taps)
    elif heads.config.recycled_stage == "post_norm":
        state = _wide(batch.trunk_states)
    else:
        state = _target_states(heads, batch)
    return run_program(
        stage.program,
        heads.all_weights(),
        heads.trunk_config.rotary,
        batch.text,
        CausalAttention(batch.text),
        shifted(state, batch.text),
    ).hidden


def _wide(states: Tensor) -> Tensor:
    return states if states.dtype == torch.float64 else states.float()
