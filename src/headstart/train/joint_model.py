"""A trained trunk as a model's folder: written, read back, measured with the real engine, and kept if it is good.

OUT/model.next/     the model that is measured
OUT/model/          the one that was kept, whose heads lie beside it
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.checkpoint.huggingface_writing import tokenizer_files, write_model_folder
from headstart.checkpoint.trunk_identity import vocabulary_digest
from headstart.errors import HeadstartError, UnsupportedError
from headstart.runtime.native import load_trunk
from headstart.train.measured import AcceptanceMeter, MeasuredAcceptance
from headstart.train.model_files import settings_after, stored_weight
from headstart.train.trunk_module import TrunkModule

MODEL_NAME = "model"
_CANDIDATE_NAME = "model.next"
_REPLACED_NAME = "model.before"


class ModelFolder:
    """Where the trained trunk is written, as the Hugging Face libraries lay a model out, in bfloat16."""

    def __init__(self, run: Path, source: Checkpoint, name: str) -> None:
        """Take what stays the same.

        Args:
            run: the folder of the run.
            source: the model as it was; its tokenizer's files are taken over.
            name: what the new model is called.

        Raises:
            UnsupportedError: the layout has no form for the model.
        """
        self._run, self._source = run, source
        _, self._config = read_config(source)
        self._settings = settings_after(source, self._config, name)
        self._files = tokenizer_files(source)

    @property
    def path(self) -> Path:
        """Of the model that was kept."""
        return self._run / MODEL_NAME

    def write(self, weights: Mapping[str, Tensor]) -> Checkpoint:
        """Write a candidate and open it.

        Args:
            weights: by the names of the trunk's program.

        Raises:
            CheckpointError: it cannot be written.
            UnsupportedError: what was written would not be read as the same model.
        """
        try:
            return self._write(weights)
        except HeadstartError:
            self.clear()  # or what is there would stand in the way of a run that heeds the message
            raise

    def _write(self, weights: Mapping[str, Tensor]) -> Checkpoint:
        tensors = [stored_weight(name, weight) for name, weight in weights.items()]
        write_model_folder(self._run / _CANDIDATE_NAME, self._settings, tensors, self._files)
        written = open_checkpoint(self._run / _CANDIDATE_NAME)
        if changed := self._changed(written):
            raise UnsupportedError(
                f"The model cannot be written as a folder of safetensors: read back, it would have another {changed}. "
                f"Start from the original folder of this model instead of {self._source.path.name}."
            )
        return written

    def keep(self) -> Checkpoint:
        """Put the candidate in the place of the model that was kept before; returns it, opened."""
        before = self._run / _REPLACED_NAME
        shutil.rmtree(before, ignore_errors=True)
        if self.path.exists():
            os.replace(self.path, before)
        os.replace(self._run / _CANDIDATE_NAME, self.path)
        shutil.rmtree(before, ignore_errors=True)
        return open_checkpoint(self.path)

    def clear(self) -> None:
        """Remove a candidate that was not kept."""
        shutil.rmtree(self._run / _CANDIDATE_NAME, ignore_errors=True)

    def _changed(self, written: Checkpoint) -> str:
        old, new = self._source.tokenizer(), written.tokenizer()
        kinds = {
            "architecture": read_config(written)[1] == self._config,
            "vocabulary": vocabulary_digest(old) == vocabulary_digest(new),
            "way of splitting text": old.digest() == new.digest(),
            "chat template": old.chat_template_digest() == new.chat_template_digest(),
        }
        return ", ".join(kind for kind, same in kinds.items() if not same)


class JointMeter:
    """Measures heads with the trunk that they were trained with, as it would be used: from its file."""

    def __init__(
        self,
        trunk: TrunkModule,
        folder: ModelFolder,
        heads: HeadsConfig,
        vocabulary: NDArray[np.int32] | None,
        prompts: Sequence[Sequence[int]],
        threads: int | None,
    ) -> None:
        """Take what does not change.

        Args:
            trunk: as it stands when it is measured.
            folder: where candidates are written.
            heads: what heads look like.
            vocabulary: int32 [V] of a reduced draft vocabulary.
            prompts: token ids; none that was trained on.
            threads: CPU threads.
        """
        self._trunk, self._folder, self._heads = trunk, folder, heads
        self._vocabulary, self._prompts, self._threads = vocabulary, prompts, threads

    def measure(self, weights: Mapping[str, NDArray[np.float32]]) -> MeasuredAcceptance:
        """Write the trunk as a candidate, and answer all prompts with it and heads of these weights."""
        written = self._folder.write(self._trunk.rounded())
        trunk = load_trunk(written, threads=self._threads, taps=self._heads.taps)
        return AcceptanceMeter(trunk, written, self._heads, self._vocabulary, self._prompts).measure(weights)
