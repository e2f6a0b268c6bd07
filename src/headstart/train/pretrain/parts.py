"""What a pretraining is put together from: its corpus, its model with first weights, and what the folder will say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from headstart.architectures.huggingface_config import huggingface_config
from headstart.checkpoint import Checkpoint
from headstart.checkpoint.huggingface_writing import tokenizer_files
from headstart.checkpoint.trunk_identity import vocabulary_digest
from headstart.errors import ConfigError
from headstart.runtime.torch_runtime import load_weights
from headstart.train.corpus import Corpus
from headstart.train.corpus.vocabulary import read_tokenizer
from headstart.train.heads_module import HeadsModule
from headstart.train.model_files import settings_after, written_as
from headstart.train.pretrain.blueprint import Blueprint
from headstart.train.pretrain.initial_weights import fill, initial_trunk
from headstart.train.pretrain.model import PretrainModel
from headstart.train.pretrain.written_model import Layout
from headstart.train.trunk_module import TrunkModule

# heads begin with other numbers than the trunk does
_HEADS_STREAM = 1 << 32


def make_model(blueprint: Blueprint, seed: int) -> PretrainModel:
    """The model with its first weights, float32, on the CPU: those of the checkpoint, or random ones.

    Args:
        blueprint: what is trained.
        seed: of what is random. The trunk's weights do not depend on the heads.
    """
    trunk_config, heads_config = blueprint.trunk, blueprint.heads
    weights = initial_trunk(trunk_config, seed) if blueprint.source is None else load_weights(blueprint.source)
    trunk = TrunkModule(trunk_config, weights, () if heads_config is None else heads_config.taps)
    if heads_config is None:
        return PretrainModel(trunk, None)
    heads = HeadsModule(heads_config, trunk_config, None)
    fill(heads.own_weights(), trunk_config.num_layers, torch.Generator().manual_seed(seed + _HEADS_STREAM))
    return PretrainModel(trunk, heads)


def make_layout(blueprint: Blueprint, corpus: Corpus, name: str, recipe: Mapping[str, Any]) -> Layout:
    """What the written model says of itself.

    Args:
        blueprint: what is trained.
        corpus: its tokenizer goes with a model from scratch.
        name: of the model.
        recipe: of the training.

    Raises:
        UnsupportedError: a checkpoint whose sizes have no form in config.json.
    """
    trunk, source = blueprint.trunk, blueprint.source
    if source is None:
        folder = corpus.tokenizer_folder
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        settings = huggingface_config(trunk) | {"eos_token_id": corpus.end_id} | written_as(name)
    else:
        files, settings = tokenizer_files(source), settings_after(source, trunk, name)
    return Layout(trunk=trunk, heads=blueprint.heads, settings=settings, files=files, recipe=recipe)


def require_same_vocabulary(source: Checkpoint, corpus: Corpus) -> None:
    """Refuse a corpus whose tokens mean something else to the checkpoint.

    Raises:
        ConfigError: they do.
    """
    ours = vocabulary_digest(read_tokenizer(corpus.tokenizer_folder))
    theirs = vocabulary_digest(source.tokenizer())
    if ours != theirs:
        raise ConfigError(
            f"{corpus.path}: the corpus has tokens of another vocabulary (digest {ours}) than {source.path} (digest "
            f"{theirs}). Prepare it with this model's tokenizer: headstart data OUT --tokenizer {source.path} ..."
        )
