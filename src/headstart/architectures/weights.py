"""Placing a checkpoint's tensors: every weight of the program found, every tensor of the file used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.config import TrunkConfig
from headstart.architectures.family import Family
from headstart.architectures.names import stored_name
from headstart.architectures.program import Embed, Linear, Program, RmsNorm
from headstart.architectures.reading import GGUF_ROTARY_FACTORS
from headstart.checkpoint import Checkpoint, Tensor
from headstart.errors import CheckpointError

# tables that old files carry and that follow from the config
_DERIVED = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedWeight:
    """A weight of the program and where it lies.

    Attributes:
        tensor: the file's tensor.
        row_order: int32 [out], the stored row of each output, or `None` if they agree.
    """

    tensor: Tensor
    row_order: NDArray[np.int32] | None = None


def place_weights(
    checkpoint: Checkpoint, family: Family, config: TrunkConfig, program: Program
) -> dict[str, PlacedWeight]:
    """Each weight name of the program with its tensor.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or has no place.
    """
    placed: dict[str, PlacedWeight] = {}
    for name, shape in wanted_shapes(program).items():
        stored = stored_name(name, checkpoint.format)
        tensor = checkpoint.tensors.get(stored)
        if tensor is None:
            raise CheckpointError(f"The tensor {stored!r} is missing from {checkpoint.path}. Fetch the file again.")
        if name == "embedding":
            shape = (config.vocab_size, config.hidden_size)
        if tensor.shape != shape:
            raise CheckpointError(
                f"The tensor {stored!r} has shape {list(tensor.shape)}; the settings say {list(shape)}. "
                "The file is damaged; fetch it again."
            )
        placed[name] = PlacedWeight(tensor, _row_order(checkpoint, family, config, name))
    used = {weight.tensor.name for weight in placed.values()} | {GGUF_ROTARY_FACTORS}
    if config.tied:
        used.add(stored_name("unembedding", checkpoint.format))  # some files repeat a tied matrix
    for name in checkpoint.tensors:
        if name not in used and not name.endswith(_DERIVED):
            raise CheckpointError(
                f"The tensor {name!r} has no place in a {config.family} model; "
                "the file is of another architecture, or carries parts that are not supported."
            )
    return placed


def wanted_shapes(program: Program) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of a program; -1 for the rows of an embedding, which it does not tell."""
    shapes: dict[str, tuple[int, ...]] = {}
    for operation in program.operations:
        match operation:
            case Embed(out, weight):
                shapes[weight] = (-1, out.width)
            case RmsNorm(_, _, weight, _, span):
                shapes[weight] = (span,)
            case Linear(out, x, weight, bias):
                shapes[weight] = (out.width, x.width)
                if bias is not None:
                    shapes[bias] = (out.width,)
    return shapes


def _row_order(checkpoint: Checkpoint, family: Family, config: TrunkConfig, name: str) -> NDArray[np.int32] | None:
    if checkpoint.format != "gguf" or not family.gguf_interleaves:
        return None
    heads = {"attention.q": config.num_heads, "attention.k": config.num_kv_heads}
    num_heads = heads.get(".".join(name.removesuffix(".bias").split(".")[2:]))
    if num_heads is None:
        return None
    # stored: pair i of a head at rows 2i and 2i + 1; wanted: at i and i + head_dim / 2
    stored = np.arange(num_heads * config.head_dim, dtype=np.int32)
    pairs = stored.reshape(num_heads, config.head_dim // 2, 2)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(-1)
