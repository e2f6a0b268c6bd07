"""Writes a model as the Hugging Face libraries lay it out: config.json, one safetensors file, the tokenizer's files.

What the settings and the tensors mean is not known here. The readers are
`opening`, `safetensors` and `huggingface_tokenizer`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from headstart.checkpoint.opening import Checkpoint
from headstart.checkpoint.safetensors import SINGLE_NAME
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.checkpoint.tensor import Tensor
from headstart.checkpoint.tokenizer import Tokenizer
from headstart.errors import CheckpointError

CONFIG_NAME = "config.json"

# by name, as a model's folder may hold anything; the weights and their settings are written anew
_COPIED = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "additional_chat_templates/*.jinja", "generation_config.json",
)  # fmt: skip


def write_model_folder(
    folder: Path, config: Mapping[str, Any], tensors: Iterable[Tensor], files: Mapping[str, bytes]
) -> None:
    """Write a model's folder anew; what it held before is gone.

    Args:
        folder: made if need be.
        config: the contents of config.json.
        tensors: of kinds whose blocks are single values, under the names of the layout.
        files: further ones, by their paths within the folder; see `tokenizer_files`.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, content in {CONFIG_NAME: _json(config), **files}.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the model cannot be written ({error}). Check the folder's permissions and the space that is "
            "left."
        ) from error
    write_safetensors(folder / SINGLE_NAME, tensors, {"format": "pt"})


def tokenizer_files(source: Checkpoint) -> dict[str, bytes]:
    """What a model folder needs beside the weights to read and write text, by path within the folder.

    The files of a folder are taken as they are; those of a GGUF file are made from its tables.

    Raises:
        CheckpointError, UnsupportedError: the source's tokenizer cannot be read.
    """
    if source.format == "gguf":
        return made_tokenizer_files(source.tokenizer())
    return copied_tokenizer_files(source.path)


def copied_tokenizer_files(folder: Path) -> dict[str, bytes]:
    """The files of a folder that have to do with text, by path within it."""
    paths = [path for pattern in _COPIED for path in sorted(folder.glob(pattern))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def made_tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """Files that say what a tokenizer in memory does, by path within a folder."""
    special, templates = tokenizer.special, tokenizer.templates
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend_json())
    around = {token_id: str(backend.id_to_token(token_id)) for token_id in (*special.prefix_ids, *special.suffix_ids)}
    if around:
        # for other programs; this one goes by the flags of tokenizer_config.json
        before, after = ([around[token_id] for token_id in ids] for ids in (special.prefix_ids, special.suffix_ids))
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            special_tokens=[(token, token_id) for token_id, token in around.items()],
        )
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(special.prefix_ids),
        "add_eos_token": bool(special.suffix_ids),
        **special.names,
    }
    if templates:
        named = [{"name": name, "template": template} for name, template in templates.items()]
        settings["chat_template"] = templates["default"] if set(templates) == {"default"} else named
    generation: dict[str, Any] = {"eos_token_id": list(special.end_ids)}
    if special.bos_id is not None:
        generation["bos_token_id"] = special.bos_id
    return {
        "tokenizer.json": backend.to_str(pretty=False).encode(),
        "tokenizer_config.json": _json(settings),
        "generation_config.json": _json(generation),
    }


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
