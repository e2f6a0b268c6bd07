"""What a pretraining is put together from: its corpus, its model with first weights, and what the folder will say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.architectures.huggingface_config import huggingface_config
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.checkpoint.huggingface_tokenizer import build_tokenizer
from headstart.checkpoint.huggingface_writing import tokenizer_files
from headstart.checkpoint.trunk_identity import vocabulary_digest
from headstart.errors import ConfigError
from headstart.runtime.torch_runtime import load_weights
from headstart.train.corpus import Corpus
from headstart.train.heads_module import HeadsModule
from headstart.train.model_files import settings_after, written_as
from headstart.train.pretrain.config import PretrainConfig
from headstart.train.pretrain.initial_weights import fill, initial_trunk
from headstart.train.pretrain.model import PretrainModel
from headstart.train.pretrain.written_model import Layout
from headstart.train.trunk_module import TrunkModule

# heads begin with other numbers than the trunk does
_HEADS_STREAM = 1 << 32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Blueprint:
    """What is trained, before any weight is made.

    Attributes:
        trunk: its sizes.
        heads: theirs, or `None` for next-token training.
        source: the checkpoint that training goes on from, or `None`.
    """

    trunk: TrunkConfig
    heads: HeadsConfig | None
    source: Checkpoint | None


def make_blueprint(config: PretrainConfig, vocab_size: int) -> Blueprint:
    """Settle what is trained.

    Args:
        config: of the run.
        vocab_size: of the corpus; a checkpoint has its own.

    Raises:
        ConfigError: settings that do not fit together.
        CheckpointError, UnsupportedError: the checkpoint cannot be used.
    """
    source = open_checkpoint(config.model.start) if config.model.start else None
    if source is None:
        trunk = config.model.trunk_config(vocab_size, config.data.window, config.heads.removed_layers)
    else:
        _, trunk = read_config(source)
        if config.data.window > trunk.max_context:
            raise ConfigError(
                f"data.window = {config.data.window}: the model of model.start has {trunk.max_context} positions. "
                "Take shorter windows."
            )
    return Blueprint(trunk=trunk, heads=config.heads.heads_config(trunk), source=source)


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
        files = {path.name: path.read_bytes() for path in sorted(corpus.tokenizer_folder.glob("*.json"))}
        settings = huggingface_config(trunk) | {"eos_token_id": corpus.end_id} | written_as(name)
    else:
        files, settings = tokenizer_files(source), settings_after(source, trunk, name)
    return Layout(trunk=trunk, heads=blueprint.heads, settings=settings, files=files, recipe=recipe)


def require_same_vocabulary(source: Checkpoint, corpus: Corpus) -> None:
    """Refuse a corpus whose tokens mean something else to the checkpoint.

    Raises:
        ConfigError: they do.
    """
    folder = corpus.tokenizer_folder
    ours = vocabulary_digest(build_tokenizer(folder, {}, {}))
    theirs = vocabulary_digest(source.tokenizer())
    if ours != theirs:
        raise ConfigError(
            f"{corpus.path}: the corpus has tokens of another vocabulary (digest {ours}) than {source.path} (digest "
            f"{theirs}). Prepare it with this model's tokenizer: headstart data OUT --tokenizer {source.path} ..."
        )
