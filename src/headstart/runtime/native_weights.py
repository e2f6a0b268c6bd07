"""Weights on their way into the native core: which format each is packed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headstart import _native
from headstart.checkpoint import Tensor
from headstart.checkpoint.bfloat16 import round_to_bfloat16
from headstart.errors import CapacityError, CheckpointError

WeightFormat = Literal["stored", "f32", "bf16", "int8", "int8-row"]


@dataclass(frozen=True, slots=True)
class WeightIndices:
    """Where the native core has the weights of a program, by name.

    Attributes:
        matrices: of embeddings and products.
        vectors: of norms and biases.
    """

    matrices: dict[str, int]
    vectors: dict[str, int]


def add_tensor(
    native: _native.Program, tensor: Tensor, weights: WeightFormat, row_order: NDArray[np.int32] | None = None
) -> int:
    """Pack a matrix; returns its index.

    Args:
        native: the program it is for.
        tensor: [out, in].
        weights: the format; "stored" keeps the tensor's.
        row_order: the tensor's row of each output, if they are not all of them in order.

    Raises:
        CheckpointError: the core cannot hold such a tensor.
        CapacityError: out of memory.
    """
    num_inputs = tensor.shape[1]
    num_outputs = tensor.shape[0] if row_order is None else len(row_order)
    kind, data = _converted(tensor, weights)
    target = weights if weights in ("int8", "int8-row") else ""
    try:
        return native.add_matrix(kind, target, num_outputs, num_inputs, data, row_order)
    except ValueError as error:
        raise CheckpointError(f"The tensor {tensor.name!r} cannot be loaded: {error}.") from None
    except MemoryError:
        raise CapacityError(f"Out of memory while loading the tensor {tensor.name!r}.") from None


def _converted(tensor: Tensor, weights: WeightFormat) -> tuple[str, NDArray[np.uint8]]:
    floating = tensor.kind in ("F32", "F16", "BF16")
    if (weights == "f32" and tensor.kind != "F32") or (weights in ("int8", "int8-row") and not floating):
        return "F32", tensor.dequantize().reshape(-1).view(np.uint8)
    if weights == "bf16" and tensor.kind != "BF16":
        return "BF16", round_to_bfloat16(tensor.dequantize().reshape(-1)).view(np.uint8)
    return tensor.kind, tensor.data
