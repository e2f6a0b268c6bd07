"""What a file's header says of a tensor, whether or not its bytes are there and of a kind that can be computed with."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """A tensor by its entry in a header.

    Attributes:
        name: as the file has it.
        kind: the number format, under the name that the file format gives it.
        shape: row-major as in PyTorch: a weight matrix is (out, in).
        num_bytes: that it takes in the file, or would.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """Elements as stored; those of a packed kind may hold several values each."""
        return math.prod(self.shape)
