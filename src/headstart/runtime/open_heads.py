"""Heads files and trunks brought together: whether they fit, and where heads for a model are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import headstart
from headstart.architectures.config import TrunkConfig
from headstart.architectures.decoder import decoder_program
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.program import RmsNorm
from headstart.architectures.reading import read_config
from headstart.architectures.weights import place_weights
from headstart.checkpoint import Checkpoint
from headstart.checkpoint.heads_file import HeadsFile, open_heads
from headstart.checkpoint.safetensors import HEADS_NAME, HEADS_SUFFIX
from headstart.checkpoint.trunk_identity import TrunkIdentity, norms_digest, vocabulary_digest
from headstart.errors import CheckpointError, ConfigError, UnsupportedError
from headstart.runtime.heads_weights import own_shapes, require_weights

SHIPPED_HEADS = Path(headstart.__file__).parent / "data" / "heads"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FittedHeads:
    """Heads that fit a trunk.

    Attributes:
        file: their weights and what the file says of them.
        config: what they look like.
        notes: sentences for the user, such as that the trunk is quantised otherwise than in training.
    """

    file: HeadsFile
    config: HeadsConfig
    notes: tuple[str, ...]


def identify_trunk(checkpoint: Checkpoint) -> TrunkIdentity:
    """What a heads file says of the trunk it was trained for, taken from the trunk itself.

    Raises:
        CheckpointError: the model's files are damaged.
        UnsupportedError: a model that this build cannot run.
    """
    family, config = read_config(checkpoint)
    program = decoder_program(config)
    placed = place_weights(checkpoint, family, config, program)
    norms = {op.weight for op in program.operations if isinstance(op, RmsNorm)}
    tokenizer = checkpoint.tokenizer()
    return TrunkIdentity(
        name=_name(checkpoint),
        weights_digest=checkpoint.digest(),
        norms_digest=norms_digest({name: placed[name].tensor.dequantize() for name in norms}),
        vocabulary_digest=vocabulary_digest(tokenizer),
        template_digest=tokenizer.chat_template_digest(),
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
    )


def open_fitting_heads(path: Path, checkpoint: Checkpoint) -> FittedHeads:
    """Open a heads file for a trunk, and refuse it if it was made for another one or is incomplete.

    Raises:
        CheckpointError: the file is damaged, does not fit, or lacks weights; it says which.
        UnsupportedError: a model that this build cannot run.
    """
    return _fitted(open_heads(path), checkpoint, identify_trunk(checkpoint))


def _fitted(file: HeadsFile, checkpoint: Checkpoint, identity: TrunkIdentity) -> FittedHeads:
    path = file.path
    if mismatches := file.header.trunk.mismatches(identity):
        raise CheckpointError(
            f"{path}: the heads were trained for {file.header.trunk.name}; this model is {identity.name}, and they do "
            f"not fit: {'; '.join(mismatches)}. Give heads that were trained for this model, or train some."
        )
    config = described_heads(file, read_config(checkpoint)[1])
    return FittedHeads(file=file, config=config, notes=file.header.trunk.notes(identity))


def described_heads(file: HeadsFile, trunk: TrunkConfig) -> HeadsConfig:
    """The heads that a file describes, once its weights were found to be theirs; which trunk it names is not looked at.

    Args:
        file: opened.
        trunk: whose shapes the heads must fit.

    Raises:
        CheckpointError: the description is none, or weights are missing, of another shape, or too many.
    """
    try:
        config = HeadsConfig.from_json(file.header.heads)
        require_weights(own_shapes(heads_program(config, trunk)), file.shapes)
        _check_vocabulary(file, config)
    except (CheckpointError, ConfigError, UnsupportedError) as error:
        raise CheckpointError(f"{file.path}: {error} The file was altered; fetch or make it again.") from error
    return config


def find_heads(checkpoint: Checkpoint, *, shipped: Path = SHIPPED_HEADS) -> FittedHeads | None:
    """Heads for a model: those beside it, or among those that come with this package.

    Beside `MODEL.gguf` they are called `MODEL.heads.safetensors`, in a folder
    that is a model `heads.safetensors`. What lies there is meant for this model,
    so it must fit; of the others, those that do not fit are passed over.

    Args:
        checkpoint: the model.
        shipped: the folder with the package's own.

    Raises:
        CheckpointError: heads beside the model are damaged or do not fit.
        UnsupportedError: a model that this build cannot run.
    """
    beside = heads_place(checkpoint)
    if beside.is_file():
        return open_fitting_heads(beside, checkpoint)
    candidates = sorted(shipped.glob(f"*{HEADS_SUFFIX}"))
    if not candidates:
        return None  # what a trunk is known by costs some 0.1 s
    identity = identify_trunk(checkpoint)
    files = (open_heads(path) for path in candidates)
    fitting = next((file for file in files if not file.header.trunk.mismatches(identity)), None)
    return None if fitting is None else _fitted(fitting, checkpoint, identity)


def heads_place(checkpoint: Checkpoint) -> Path:
    """Where heads beside a model lie, or would."""
    path = checkpoint.path
    return path / HEADS_NAME if path.is_dir() else path.with_suffix(HEADS_SUFFIX)


def _name(checkpoint: Checkpoint) -> str:
    named = checkpoint.metadata.get("general.name") or checkpoint.metadata.get("_name_or_path")
    # of a path, which may be one of the machine that trained the model, the last part says enough
    return Path(str(named)).name if named else checkpoint.path.stem


def _check_vocabulary(file: HeadsFile, config: HeadsConfig) -> None:
    found = 0 if file.vocabulary is None else len(file.vocabulary)
    if found != config.draft_vocab_size:
        raise CheckpointError(
            f"The heads guess among {config.draft_vocab_size or 'all'} tokens, but the file has a vocabulary of "
            f"{found or 'none'}."
        )
