"""A named tensor as it lies in the file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.checkpoint.dequantize import dequantize
from headstart.checkpoint.kinds import KINDS
from headstart.errors import CheckpointError, UnsupportedError


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A named tensor; its bytes are mapped from the file, not loaded.

    Attributes:
        name: as the file has it.
        shape: row-major as in PyTorch: a weight matrix is (out, in).
        kind: how values are stored, a name in `KINDS`.
        data: uint8 [bytes], read-only. In a GGUF file it is aligned as the file
            says (32 bytes by default); in a safetensors file it may begin anywhere.

    Raises:
        CheckpointError: the bytes do not match kind and shape.
        UnsupportedError: the kind is unknown.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    data: NDArray[np.uint8]

    def __post_init__(self) -> None:
        """Check the bytes against kind and shape."""
        layout = KINDS.get(self.kind)
        if layout is None:
            raise UnsupportedError(
                f"Tensor {self.name!r} has kind {self.kind}; this build reads {', '.join(KINDS)}. "
                "Convert the model to one of these."
            )
        if not layout.fits(self.shape):
            raise CheckpointError(
                f"Tensor {self.name!r} has shape {self.shape}, but rows of {self.kind} are multiples of "
                f"{layout.block_values} values. The file is damaged; fetch it again."
            )
        if self.data.nbytes != layout.num_bytes(self.shape):
            raise CheckpointError(
                f"Tensor {self.name!r} has {self.data.nbytes} bytes, but {self.kind} {self.shape} takes "
                f"{layout.num_bytes(self.shape)}. The file is damaged; fetch it again."
            )

    def dequantize(self) -> NDArray[np.float32]:
        """The values as a new float32 array of `shape`.

        Raises:
            UnsupportedError: the kind holds no weights (integers, F64, F8).
        """
        return dequantize(self.kind, self.data, self.shape)
