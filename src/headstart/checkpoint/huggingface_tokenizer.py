"""A tokenizer out of a Hugging Face folder: tokenizer.json and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from headstart.checkpoint.json_files import read_json_object
from headstart.checkpoint.spelling import spelling_of
from headstart.checkpoint.tokenizer import SpecialTokens, Tokenizer
from headstart.errors import CheckpointError, UnsupportedError

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_TRIAL_TEXT = "a \U0010ffff"  # a letter, a space, and what no vocabulary has


def build_tokenizer(folder: Path, config: Mapping[str, object], generation_config: Mapping[str, object]) -> Tokenizer:
    """The tokenizer of a model folder.

    Args:
        folder: holds tokenizer.json and, mostly, tokenizer_config.json.
        config: the contents of config.json.
        generation_config: the contents of generation_config.json, or empty.

    Raises:
        CheckpointError: tokenizer.json is missing, or a file is damaged.
        UnsupportedError: the vocabulary is neither byte-level nor SentencePiece.
    """
    backend = _load_backend(folder / "tokenizer.json")
    settings_path = folder / "tokenizer_config.json"
    settings = read_json_object(settings_path) if settings_path.is_file() else {}
    names = _named_tokens(folder, settings)
    _mark_special(backend, names)
    added = backend.get_added_tokens_decoder()
    vocab_size = max([backend.get_vocab_size(with_added_tokens=True), *(token_id + 1 for token_id in added)])
    return Tokenizer(
        backend,
        spelling_of(backend.decoder),
        _special_tokens(backend, settings, names, config, generation_config),
        _templates(folder, settings),
        vocab_size,
    )


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        if (path.parent / "tokenizer.model").is_file():
            raise UnsupportedError(
                f"{path.parent}: has tokenizer.model but no tokenizer.json. Write one with transformers: "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        raise CheckpointError(f"{path}: the file is missing. Copy the tokenizer's files into the model's folder.")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
        backend.encode(_TRIAL_TEXT)  # some faults, such as an unknown token that is no token, show only in use
    except Exception as error:  # the library raises plain exceptions
        raise CheckpointError(f"{path}: no valid tokenizer ({error}). Fetch the file again.") from error
    # settings of some training run; here they would cut or pad prompts without a word
    backend.no_truncation()
    backend.no_padding()
    return backend


def _named_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """{"bos_token": "<s>", ...} from tokenizer_config.json or, in older folders, special_tokens_map.json."""
    map_path = folder / "special_tokens_map.json"
    older = read_json_object(map_path) if map_path.is_file() else {}
    names: dict[str, str] = {}
    for name in _NAMED_TOKENS:
        token = settings.get(name, older.get(name))
        if isinstance(token, dict):  # an AddedToken written out
            token = token.get("content")
        if isinstance(token, str):
            names[name] = token
    return names


def _mark_special(backend: tokenizers.Tokenizer, names: Mapping[str, str]) -> None:
    """Make named tokens special if they are tokens; others would get ids the model has no rows for."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    missing = {token for token in names.values() if token not in special and backend.token_to_id(token) is not None}
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in sorted(missing)])


def _special_tokens(
    backend: tokenizers.Tokenizer,
    settings: Mapping[str, Any],
    names: Mapping[str, str],
    config: Mapping[str, object],
    generation_config: Mapping[str, object],
) -> SpecialTokens:
    bos_id = backend.token_to_id(names["bos_token"]) if "bos_token" in names else None
    eos_id = backend.token_to_id(names["eos_token"]) if "eos_token" in names else None
    # generation_config.json is what the model's makers decode with; config.json is the fallback
    decoding = generation_config if "eos_token_id" in generation_config else config
    declared = decoding.get("eos_token_id")
    ends = [eos_id, *(declared if isinstance(declared, list) else [declared])]
    # explicit flags override what tokenizer.json adds, as they do in transformers
    explicit = "add_bos_token" in settings or "add_eos_token" in settings
    adds_bos, adds_eos = settings.get("add_bos_token") is True, settings.get("add_eos_token") is True
    return SpecialTokens(
        bos_id=bos_id,
        end_ids=tuple(dict.fromkeys(token_id for token_id in ends if type(token_id) is int and token_id >= 0)),
        names=names,
        prefix_ids=(bos_id,) if adds_bos and bos_id is not None else (),
        suffix_ids=(eos_id,) if adds_eos and eos_id is not None else (),
        from_backend=not explicit,
    )


def _templates(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name; a file of its own goes before tokenizer_config.json."""
    templates: dict[str, str] = {}
    stored = settings.get("chat_template")
    if isinstance(stored, str):
        templates["default"] = stored
    elif isinstance(stored, list):
        for entry in stored:
            if not (isinstance(entry, dict) and isinstance(entry.get("name"), str) and "template" in entry):
                raise CheckpointError(f"{folder}/tokenizer_config.json: a chat template without name or template.")
            templates[entry["name"]] = str(entry["template"])
    files = {"default": folder / "chat_template.jinja"}
    files |= {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    for name, path in files.items():
        if path.is_file():
            try:
                templates[name] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise CheckpointError(f"{path}: the template cannot be read ({error}). Fetch it again.") from error
    return templates
