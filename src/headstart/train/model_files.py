"""Trained weights and settings in the form of a Hugging Face folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.architectures.config import TrunkConfig
from headstart.architectures.huggingface_config import huggingface_config
from headstart.architectures.names import stored_name
from headstart.checkpoint import Checkpoint
from headstart.checkpoint import Tensor as StoredTensor


def stored_weight(name: str, weight: Tensor) -> StoredTensor:
    """A trunk's weight in bfloat16, under the name of the layout.

    Args:
        name: as the trunk's program calls it.
        weight: on any device.
    """
    values = weight.cpu().bfloat16().contiguous().view(torch.uint16).numpy()
    shape = tuple(weight.shape)
    return StoredTensor(stored_name(name, "huggingface"), shape, "BF16", values.reshape(-1).view(np.uint8))


def settings_after(source: Checkpoint, config: TrunkConfig, name: str) -> dict[str, Any]:
    """The contents of config.json of a model that was trained on from another.

    Those of a folder stay, but for what speaks of its files.

    Args:
        source: the model as it was.
        config: of both.
        name: what the new one is called.

    Raises:
        UnsupportedError: the layout has no form for the model.
    """
    if source.format == "gguf":
        tokenizer = source.tokenizer()
        ends = {"bos_token_id": tokenizer.bos_id, "eos_token_id": list(tokenizer.end_ids)}
        return huggingface_config(config) | ends | written_as(name)
    kept = {key: value for key, value in source.metadata.items() if key not in ("dtype", "quantization_config")}
    return kept | written_as(name)


def written_as(name: str) -> dict[str, Any]:
    """Entries of config.json that speak of the files."""
    return {"torch_dtype": "bfloat16", "_name_or_path": name}
