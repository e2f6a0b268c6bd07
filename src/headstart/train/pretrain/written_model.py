"""A trained model as a folder that every verb takes: trunk, tokenizer, and heads beside it.

OUT/config.json, model.safetensors, tokenizer.json, ...   the next-token model, which stands alone
OUT/heads.safetensors                                     its heads; may be deleted
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.checkpoint.heads_file import HeadsHeader, write_heads
from headstart.checkpoint.huggingface_writing import write_model_folder
from headstart.checkpoint.safetensors import HEADS_NAME
from headstart.errors import UnsupportedError
from headstart.runtime.open_heads import identify_trunk
from headstart.train.model_files import stored_weight

_TRUNK, _HEADS = "trunk.", "heads."
_NEXT_NAME = "model.next"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """What a model's folder holds beside weights.

    Attributes:
        trunk: of the model.
        heads: of its heads, or `None`.
        settings: the contents of config.json.
        files: further files by their paths, the tokenizer's among them.
        recipe: how heads and trunk were trained, for the heads file.
    """

    trunk: TrunkConfig
    heads: HeadsConfig | None
    settings: Mapping[str, Any]
    files: Mapping[str, bytes]
    recipe: Mapping[str, Any]


class ModelWriter:
    """Writes candidates into a run's folder, and puts one of them into its place."""

    def __init__(self, layout: Layout, run: Path, place: Path) -> None:
        """Nothing is written yet.

        Args:
            layout: what does not change.
            run: where candidates are made.
            place: where the model is to lie; other files there are left alone.
        """
        self._layout, self._next, self._place = layout, run / _NEXT_NAME, place

    def write(self, weights: Mapping[str, Tensor]) -> Checkpoint:
        """Write the trunk as a candidate, in bfloat16, and open it.

        Args:
            weights: as `PretrainTrainer.weights` gives them.

        Raises:
            CheckpointError: it cannot be written.
            UnsupportedError: what was written would not be read as the same model.
        """
        tensors = [
            stored_weight(name.removeprefix(_TRUNK), weight)
            for name, weight in weights.items()
            if name.startswith(_TRUNK)
        ]
        write_model_folder(self._next, self._layout.settings, tensors, self._layout.files)
        written = open_checkpoint(self._next)
        if read_config(written)[1] != self._layout.trunk:
            raise UnsupportedError(
                "The model cannot be written as a folder of safetensors: read back, it would be of another "
                "architecture. Start from the original folder of the model instead of a .gguf file."
            )
        return written

    def place(self, weights: Mapping[str, Tensor], measured: Mapping[str, Any]) -> Path | None:
        """Put the model of these weights into its place.

        Args:
            weights: as for `write`.
            measured: what the heads reach, for their file.

        Returns:
            The heads' file, if there are heads.

        Raises:
            CheckpointError: it cannot be written.
        """
        checkpoint = self.write(weights)
        heads = self._place / HEADS_NAME
        # heads of another trunk would be refused, so none lie there until theirs is whole
        heads.unlink(missing_ok=True)
        if self._layout.heads is not None:
            header = HeadsHeader(
                heads=self._layout.heads.to_json(),
                trunk=identify_trunk(checkpoint),
                recipe=self._layout.recipe,
                measured=measured,
            )
            write_heads(self._next / HEADS_NAME, header, head_arrays(weights))
        names = sorted(path.relative_to(self._next) for path in self._next.rglob("*") if path.is_file())
        for name in sorted(names, key=lambda name: name.name == HEADS_NAME):
            (self._place / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._next / name, self._place / name)
        self.clear()
        return None if self._layout.heads is None else heads

    def clear(self) -> None:
        """Remove a candidate."""
        shutil.rmtree(self._next, ignore_errors=True)


def head_arrays(weights: Mapping[str, Tensor]) -> dict[str, NDArray[np.float32]]:
    """The heads' weights by the names of their programs."""
    return {
        name.removeprefix(_HEADS): weight.float().cpu().numpy()
        for name, weight in weights.items()
        if name.startswith(_HEADS)
    }
