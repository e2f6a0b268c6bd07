"""The tokenizer of a corpus: plain bytes, one trained on the text, or a model's; and text to tokens by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers

from headstart.checkpoint import Tokenizer, open_checkpoint
from headstart.checkpoint.byte_level_splits import split_rule
from headstart.checkpoint.huggingface_tokenizer import build_tokenizer
from headstart.checkpoint.huggingface_writing import copied_tokenizer_files, made_tokenizer_files, tokenizer_files
from headstart.checkpoint.json_files import read_json_object
from headstart.checkpoint.spelling import ByteLevelSpelling, byte_characters
from headstart.checkpoint.tokenizer import SpecialTokens
from headstart.errors import ConfigError

END_OF_TEXT = "<|endoftext|>"

_NUM_BYTES = 256

BYTE_VOCAB_SIZE = _NUM_BYTES + 1
"""Tokens of plain bytes: all of them, and the end of a text."""

_SMALLEST_BPE = _NUM_BYTES + 2  # with the end of a text, and one token that is more than a byte
_GENERATION_CONFIG = "generation_config.json"

# words with the space before them, single digits, runs of marks and of white space: as Qwen's, without composing
# characters, which would change the text
_SPLITS = "deepseek-r1-qwen"


def check_tokenizer_choice(choice: str) -> None:
    """Refuse a choice that can be seen to be wrong before any text is read.

    Args:
        choice: "bytes", "bpe:SIZE", or a model or a folder with tokenizer.json.

    Raises:
        ConfigError: a size is missing or out of range.
    """
    kind, _, size = choice.partition(":")
    if kind == "bpe" and not (size.isascii() and size.isdigit() and int(size) >= _SMALLEST_BPE):
        raise ConfigError(
            f"tokenizer = {choice!r}: after bpe: stands how many tokens there may be, at least {_SMALLEST_BPE}, such "
            "as bpe:8192."
        )
    if choice == "":
        raise ConfigError("The tokenizer's name is empty. Give bytes, bpe:SIZE, or a model.")


def write_tokenizer(folder: Path, choice: str, texts: Callable[[], Iterator[str]]) -> Tokenizer:
    """Make or copy a tokenizer's files.

    Args:
        folder: made; must not exist.
        choice: see `check_tokenizer_choice`.
        texts: gives the texts that one is trained on, if it is trained.

    Returns:
        The tokenizer, read back from the folder.

    Raises:
        CheckpointError, UnsupportedError: the model cannot be read.
        ConfigError: it has no token that ends a text.
    """
    kind, _, size = choice.partition(":")
    if choice == "bytes":
        files = made_tokenizer_files(_own(_byte_backend()))
    elif kind == "bpe":
        files = made_tokenizer_files(_own(_train_bpe(texts(), int(size))))
    else:
        files = _taken(choice)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    tokenizer = read_tokenizer(folder)
    if not tokenizer.end_ids:
        raise ConfigError(f"The tokenizer of {choice} has no token that ends a text. Take one that has, or bytes.")
    return tokenizer


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer whose files lie in a folder, with or without a model.

    Raises:
        CheckpointError: a file is missing or damaged.
        UnsupportedError: a kind of tokenizer that this build does not know.
    """
    generation = folder / _GENERATION_CONFIG
    return build_tokenizer(folder, {}, read_json_object(generation) if generation.is_file() else {})


class TextEncoder:
    """Documents to tokens: what the tokenizer puts before a text, the text, and the token that ends it.

    A text that spells a special token out, as the source of some program may, gets the tokens of its characters: the
    end of a text stands nowhere but at its end.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """For a tokenizer with an end of text."""
        self._backend = tokenizers.Tokenizer.from_str(tokenizer.backend_json())
        self._backend.encode_special_tokens = True
        self._prefix = np.array(_prefix_of(tokenizer), np.int64)
        self._end = np.array(tokenizer.end_ids[:1], np.int64)
        # with this size there is no room for merges, so a byte is its own token, and the library need not be asked
        self._are_bytes = (
            tokenizer.vocab_size == BYTE_VOCAB_SIZE
            and self._backend.normalizer is None
            and all(tokenizer.token_bytes(byte) == bytes([byte]) for byte in range(_NUM_BYTES))
        )

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """The tokens of each text, int64 [length]."""
        if self._are_bytes:
            inner = [np.frombuffer(text.encode(), np.uint8) for text in texts]
        else:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
            inner = [np.array(encoding.ids, np.int64) for encoding in encodings]
        return [np.concatenate([self._prefix, tokens, self._end]) for tokens in inner]


def _byte_backend() -> tokenizers.Tokenizer:
    """Byte-level BPE without merges: token b is byte b."""
    backend = tokenizers.Tokenizer(models.BPE(vocab=byte_characters(), merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return backend


def _train_bpe(texts: Iterator[str], size: int) -> tokenizers.Tokenizer:
    """Byte-level BPE learnt from texts; small ones may not have pairs enough for the whole size."""
    backend = tokenizers.Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in split_rule(_SPLITS).patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=sorted(byte_characters()), special_tokens=[END_OF_TEXT],
        show_progress=False,
    )  # fmt: skip
    backend.train_from_iterator(texts, trainer)
    return backend


def _own(backend: tokenizers.Tokenizer) -> Tokenizer:
    """A tokenizer of this project's own making, from a backend that cuts text and merges."""
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    end_ids = tuple(backend.get_added_tokens_decoder())  # there is no other added token
    special = SpecialTokens(end_ids=end_ids, names={"eos_token": END_OF_TEXT})
    return Tokenizer(backend, ByteLevelSpelling(), special, {}, backend.get_vocab_size())


def _taken(model: str) -> dict[str, bytes]:
    """The files of a model's tokenizer, or of a folder with nothing but a tokenizer."""
    folder = Path(model)
    if (folder / "tokenizer.json").is_file() and not (folder / "config.json").is_file():
        tokenizer, files = read_tokenizer(folder), copied_tokenizer_files(folder)
    else:
        source = open_checkpoint(model)
        tokenizer, files = source.tokenizer(), tokenizer_files(source)
    if _GENERATION_CONFIG not in files:
        # else what config.json says of the end of a text would be lost
        files[_GENERATION_CONFIG] = json.dumps({"eos_token_id": list(tokenizer.end_ids)}).encode()
    return files


def _prefix_of(tokenizer: Tokenizer) -> list[int]:
    """The tokens that the tokenizer puts before a text of its own accord."""
    probe = "a"
    whole, inner = tokenizer.encode(probe), tokenizer.encode(probe, add_special_tokens=False)
    begin = next(place for place in range(len(whole)) if whole[place : place + len(inner)] == inner)
    return whole[:begin]
