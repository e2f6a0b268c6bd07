"""A tokenizer out of the tables of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from headstart.checkpoint.byte_level_splits import split_rule
from headstart.checkpoint.spelling import SPACE_PIECE, spelling_of
from headstart.checkpoint.tokenizer import SpecialTokens, Tokenizer
from headstart.errors import CheckpointError, UnsupportedError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5

_LLAMA3_TOKENS = 128256

_NAMED_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Many files name one end token only, though the model ends turns with another. These spellings mean nothing else.
_END_SPELLINGS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<｜end▁of▁sentence｜>", "<end_of_utterance>",
)  # fmt: skip


def build_tokenizer(metadata: Mapping[str, object], path: Path) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Args:
        metadata: the file's key-values.
        path: the file, for errors.

    Raises:
        CheckpointError: the file has no vocabulary, or a damaged one.
        UnsupportedError: a kind of vocabulary or splitting rule that this build
            does not know.
    """
    tables = _Tables(metadata, path)
    model = tables.value("model", str)
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if model not in builders:
        raise UnsupportedError(
            f"{path}: the vocabulary is of kind {model[:80]!r}; this build reads gpt2 (byte-level BPE) and "
            "llama (SentencePiece BPE)."
        )
    vocabulary = _read_vocabulary(tables, spell_spaces=model == "llama")
    backend, adds_bos = builders[model](tables, vocabulary)
    special = _special_tokens(tables, vocabulary, adds_bos)
    _add_tokens(backend, vocabulary, special)
    return Tokenizer(backend, spelling_of(backend.decoder), special, _templates(metadata), len(vocabulary.tokens))


class _Tables:
    """The tokenizer's keys, read with their types checked."""

    def __init__(self, metadata: Mapping[str, object], path: Path) -> None:
        self._metadata = metadata
        self._path = path

    def fail(self, problem: str) -> NoReturn:
        raise CheckpointError(f"{self._path}: {problem}. The file's vocabulary is damaged; fetch it again.")

    def value(self, name: str, kind: type, default: Any = None) -> Any:
        """A key's value; without a default it must be there."""
        value = self._metadata.get(f"tokenizer.ggml.{name}", default)
        if value is None:
            self.fail(f"key tokenizer.ggml.{name} is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(f"key tokenizer.ggml.{name} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def has(self, name: str) -> bool:
        return f"tokenizer.ggml.{name}" in self._metadata

    def strings(self, name: str) -> tuple[str, ...]:
        values: tuple[Any, ...] = self.value(name, tuple)
        if values and not isinstance(values[0], str):  # an array has one type
            self.fail(f"key tokenizer.ggml.{name} holds no strings")
        return values

    def numbers(self, name: str, count: int) -> NDArray[Any]:
        values: NDArray[Any] = self.value(name, np.ndarray)
        if len(values) != count:
            self.fail(f"key tokenizer.ggml.{name} has {len(values)} entries for {count} tokens")
        return values

    def token_id(self, name: str, num_tokens: int) -> int | None:
        """The id that a key names, or `None` if there is no such key."""
        if not self.has(name):
            return None
        token_id: int = self.value(name, int)
        if not 0 <= token_id < num_tokens:
            self.fail(f"key tokenizer.ggml.{name} is {token_id}, but there are {num_tokens} tokens")
        return token_id


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """Tokens as the backend is to spell them.

    Attributes:
        tokens: by id.
        types: GGUF's type of each token.
        ids: of each token that is not empty; an empty one stands for a row of
            the embedding that no text reaches.
    """

    tokens: tuple[str, ...]
    types: list[int]
    ids: dict[str, int]


def _read_vocabulary(tables: _Tables, *, spell_spaces: bool) -> _Vocabulary:
    tokens = tables.strings("tokens")
    has_types = tables.has("token_type")
    types = tables.numbers("token_type", len(tokens)).tolist() if has_types else [_NORMAL] * len(tokens)
    if spell_spaces:
        # What users defined is looked for in the text itself, where a space is a space.
        tokens = tuple(
            token.replace(SPACE_PIECE, " ") if kind == _USER_DEFINED else token
            for token, kind in zip(tokens, types, strict=True)
        )
    ids = {token: token_id for token_id, token in enumerate(tokens) if token}
    if len(ids) + tokens.count("") != len(tokens):
        repeated = next(token for token_id, token in enumerate(tokens) if token and ids[token] != token_id)
        tables.fail(f"token {repeated!r} occurs twice in the vocabulary")
    return _Vocabulary(tokens, types, ids)


def _byte_level(tables: _Tables, vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """Byte-level BPE, and whether texts begin with bos by default."""
    rule = split_rule(_rule_name(tables, vocabulary))
    backend = _bpe(tables, vocabulary.ids, _file_merges(tables), ignore_merges=rule.ignore_merges)
    if rule.composes:
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return backend, rule.adds_bos


def _rule_name(tables: _Tables, vocabulary: _Vocabulary) -> str:
    if tables.has("pre"):
        name: str = tables.value("pre", str)
        return name
    # files from before April 2024 do not say; those of Llama 3 are known by its vocabulary
    if len(vocabulary.tokens) == _LLAMA3_TOKENS and "<|begin_of_text|>" in vocabulary.ids:
        return "llama-bpe"
    raise UnsupportedError(
        "The file does not say how its vocabulary cuts text into words: there is no tokenizer.ggml.pre, as in all from "
        "before April 2024. By a wrong rule the model reads tokens that it was not trained on; take a newer conversion."
    )


def _sentencepiece(tables: _Tables, vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """SentencePiece BPE, and that texts begin with bos by default.

    A space goes before the text and after every special token, as in the
    tokenizer.json of Llama 2 and its kin and in llama.cpp.
    """
    unknown = next((t for t, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if kind == _UNKNOWN), None)
    merges = _file_merges(tables) if tables.has("merges") else _merges_from_scores(tables, vocabulary)
    backend = _bpe(tables, vocabulary.ids, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown)
    spaces = normalizers.Replace(" ", SPACE_PIECE)
    steps = [decoders.Replace(SPACE_PIECE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if tables.value("add_space_prefix", bool, True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_PIECE), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = spaces
    backend.decoder = decoders.Sequence(steps)
    return backend, True


def _bpe(tables: _Tables, ids: dict[str, int], merges: list[tuple[str, str]], **options: Any) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges, **options))
    except Exception as error:  # the library raises plain exceptions, such as for a merge of no tokens
        tables.fail(f"the vocabulary and its merges do not fit together ({error})")


def _file_merges(tables: _Tables) -> list[tuple[str, str]]:
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in tables.strings("merges"))]
    if not all(left and right for left, right in merges):
        tables.fail("tokenizer.ggml.merges has an entry that is not two tokens with a space between")
    return merges


def _merges_from_scores(tables: _Tables, vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """The merges that SentencePiece's rule implies: the pair whose union scores best goes first.

    Source: transformers, `generate_merges`, which converts SentencePiece models.
    """
    scores = tables.numbers("scores", len(vocabulary.tokens)).tolist()
    # control, byte and user-defined pieces never come out of a merge
    score_of = {
        token: score
        for token, kind, score in zip(vocabulary.tokens, vocabulary.types, scores, strict=True)
        if kind in (_NORMAL, _UNUSED)
    }
    pairs = [
        (token[:cut], token[cut:])
        for token in score_of
        for cut in range(1, len(token))
        if token[:cut] in score_of and token[cut:] in score_of
    ]
    # best score first; within a score the longer left part, then the longer right part
    pairs.sort(key=lambda pair: (-score_of[pair[0] + pair[1]], -len(pair[0]), -len(pair[1])))
    return pairs


def _special_tokens(tables: _Tables, vocabulary: _Vocabulary, adds_bos: bool) -> SpecialTokens:
    num_tokens = len(vocabulary.tokens)
    named = {name: tables.token_id(key, num_tokens) for name, key in _NAMED_TOKENS.items()}
    by_key = [tables.token_id(key, num_tokens) for key in _END_KEYS]
    by_spelling = [vocabulary.ids.get(spelling) for spelling in _END_SPELLINGS]
    end_ids = dict.fromkeys(
        token_id
        for token_id in (*by_key, *by_spelling)  # files mark the latter as control tokens or not
        if token_id is not None
    )
    bos_id, eos_id = named["bos_token"], named["eos_token"]
    return SpecialTokens(
        bos_id=bos_id,
        end_ids=tuple(end_ids),
        names={name: vocabulary.tokens[token_id] for name, token_id in named.items() if token_id is not None},
        prefix_ids=(bos_id,) if bos_id is not None and tables.value("add_bos_token", bool, adds_bos) else (),
        suffix_ids=(eos_id,) if eos_id is not None and tables.value("add_eos_token", bool, False) else (),
    )


def _add_tokens(backend: tokenizers.Tokenizer, vocabulary: _Vocabulary, special: SpecialTokens) -> None:
    """Make the backend find marked tokens whole in any text."""
    named = {*special.names.values(), *(vocabulary.tokens[token_id] for token_id in special.end_ids)}
    marks: list[AddedToken] = []
    for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        is_special = kind in (_CONTROL, _UNKNOWN) or token in named
        if token and (is_special or kind == _USER_DEFINED):
            marks.append(AddedToken(token, special=is_special, normalized=False))
    backend.add_tokens(marks)


def _templates(metadata: Mapping[str, object]) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    found = {
        key.removeprefix(prefix).lstrip(".") or "default": value
        for key, value in metadata.items()
        if key == prefix or key.startswith(prefix + ".")
    }
    return {name: value for name, value in found.items() if isinstance(value, str)}
