"""Tokenizers out of GGUF tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.checkpoint import Tokenizer, open_checkpoint
from headstart.checkpoint.byte_level_splits import SPLIT_RULES
from headstart.errors import CheckpointError, ConfigError, UnsupportedError
from headstart.testing.gguf_writer import write_gguf


def build(folder: Path, metadata: dict[str, object], **changes: Any) -> Tokenizer:
    """A tokenizer of a file with `metadata`; a change of `None` drops the key."""
    changed = {**metadata, **{f"tokenizer.ggml.{name}": value for name, value in changes.items()}}
    write_gguf(folder / "m.gguf", {key: value for key, value in changed.items() if value is not None})
    return open_checkpoint(folder / "m.gguf").tokenizer()


def spelled(metadata: dict[str, object], ids: list[int]) -> list[str]:
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    return [tokens[token_id] for token_id in ids]


def test_byte_level_merges_words(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    tokenizer = build(tmp_path, byte_level_metadata)
    assert spelled(byte_level_metadata, tokenizer.encode("hello he!")) == ["hello", "Ġhe", "!"]
    assert tokenizer.vocab_size == 256 + 5 + 3
    assert tokenizer.bos_id == tokenizer.token_id("<s>")
    assert tokenizer.end_ids == (tokenizer.token_id("<end>"),)


@pytest.mark.parametrize(
    "text", ["", " ", "  he  ", "größe 漢字 🤗\r\n\t", "a\0b\x7f", "e\u0301", "\ufffd", "<tool>he"]
)
def test_byte_level_text_survives(tmp_path: Path, byte_level_metadata: dict[str, object], text: str) -> None:
    tokenizer = build(tmp_path, byte_level_metadata)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_marked_tokens_are_found_in_text(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    tokenizer = build(tmp_path, byte_level_metadata)
    ids = tokenizer.encode("he<end><tool>he")
    assert spelled(byte_level_metadata, ids) == ["he", "<end>", "<tool>", "he"]
    assert [tokenizer.is_special(token_id) for token_id in ids] == [False, True, False, False]
    assert tokenizer.decode(ids) == "he<tool>he"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "he<end><tool>he"


def test_digits_stand_alone_where_the_rule_says_so(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    byte_level_metadata["tokenizer.ggml.tokens"].append("12")  # type: ignore[attr-defined]
    types = np.append(byte_level_metadata["tokenizer.ggml.token_type"], np.int32(1))  # type: ignore[call-overload]
    changes = {"token_type": types, "merges": ["1 2"]}
    joined = build(tmp_path, byte_level_metadata, pre="gpt-2", **changes).encode("12")
    apart = build(tmp_path, byte_level_metadata, pre="smollm", **changes).encode("12")
    assert (len(joined), len(apart)) == (1, 2)


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["I", "'m", " 1234", "   ", " x"]),
        ("default", ["I", "'", "m", " ", "123", "4", "   ", " x"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", "   ", " x"]),
        ("llama-bpe", ["I", "'m", " ", "123", "4", "   ", " x"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "   ", " x"]),
        ("tekken", ["I", "'m", " ", "1", "2", "3", "4", "   ", " x"]),
        ("gpt-4o", ["I'm", " ", "123", "4", "   ", " x"]),
        ("deepseek-v3", ["I", "'m", " ", "123", "4", "   ", " x"]),
        ("deepseek-coder", ["I", "'", "m", " ", "1", "2", "3", "4", "   ", " x"]),
    ],
)
def test_rules_cut_words(tmp_path: Path, byte_level_metadata: dict[str, object], pre: str, words: list[str]) -> None:
    # A vocabulary in which every word of the text can be merged whole, left to right; rules keep words apart.
    text = "I'm 1234    x"
    tokens: list[str] = list(byte_level_metadata["tokenizer.ggml.tokens"])[:256]  # type: ignore[call-overload]
    spelling = text.replace(" ", "Ġ")
    merges: dict[str, str] = {}
    for start in range(len(spelling)):
        for end in range(start + 2, len(spelling) + 1):
            merges.setdefault(spelling[start:end], f"{spelling[start : end - 1]} {spelling[end - 1]}")
    tokenizer = build(
        tmp_path, byte_level_metadata, pre=pre, tokens=[*tokens, *merges], merges=list(merges.values()),
        token_type=None, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    ids = tokenizer.encode(text)
    assert [tokenizer.decode([token_id]) for token_id in ids] == words


@pytest.mark.parametrize("pre", sorted(SPLIT_RULES))
def test_every_rule_is_valid_and_loses_nothing(
    tmp_path: Path, byte_level_metadata: dict[str, object], pre: str
) -> None:
    tokenizer = build(tmp_path, byte_level_metadata, pre=pre)
    text = "He'LL say: “größe”,\r\n\n  12345 x+=漢字か\u0301 \t🤗/"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_llama3_begins_with_bos_and_takes_whole_tokens(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    changes = {"pre": "llama-bpe", "merges": ["h e"]}  # "hello" is a token that no merge leads to
    tokenizer = build(tmp_path, byte_level_metadata, **changes)
    assert spelled(byte_level_metadata, tokenizer.encode("hello")) == ["<s>", "hello"]
    assert spelled(byte_level_metadata, tokenizer.encode("hello", add_special_tokens=False)) == ["hello"]
    assert spelled(
        byte_level_metadata, build(tmp_path, byte_level_metadata, **changes, add_bos_token=False).encode("he")
    ) == ["he"]


def test_qwen2_composes_characters(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    composed = build(tmp_path, byte_level_metadata, pre="qwen2")
    assert composed.encode("e\u0301") == composed.encode("é")
    untouched = build(tmp_path, byte_level_metadata, pre="llama-bpe")
    assert untouched.encode("e\u0301") != untouched.encode("é")


def test_eos_is_added_on_request(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    tokenizer = build(tmp_path, byte_level_metadata, add_bos_token=True, add_eos_token=True)
    assert spelled(byte_level_metadata, tokenizer.encode("he")) == ["<s>", "he", "<end>"]


def test_all_end_tokens_count_the_customary_first(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    tokens = [*byte_level_metadata["tokenizer.ggml.tokens"], "<|eot_id|>", "<|im_end|>"]  # type: ignore[misc]
    types = np.append(byte_level_metadata["tokenizer.ggml.token_type"], np.array([3, 1], np.int32))  # type: ignore[call-overload]
    tokenizer = build(tmp_path, byte_level_metadata, tokens=tokens, token_type=types, eom_token_id=0)
    # <|im_end|> is marked as ordinary text in this file, as some conversions do; it means an end all the same
    assert tokenizer.end_ids == (
        tokenizer.token_id("<end>"), 0, tokenizer.token_id("<|im_end|>"), tokenizer.token_id("<|eot_id|>"),
    )  # fmt: skip
    assert tokenizer.encode("<|im_end|>") == [tokenizer.token_id("<|im_end|>")]


def test_padded_rows_decode_to_nothing(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    tokens = [*byte_level_metadata["tokenizer.ggml.tokens"], "", ""]  # type: ignore[misc]
    tokenizer = build(tmp_path, byte_level_metadata, tokens=tokens, token_type=None)
    assert tokenizer.vocab_size == len(tokens)
    assert tokenizer.decode([len(tokens) - 1, tokenizer.token_id("he"), 10**6]) == "he"  # type: ignore[list-item]


def test_chats_of_a_gguf_file(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    byte_level_metadata["tokenizer.chat_template.tool_use"] = "{{ tools[0] }}{{ bos_token }}{{ eos_token }}"
    tokenizer = build(tmp_path, byte_level_metadata, add_bos_token=True)
    messages = [{"role": "user", "content": "he"}]
    assert tokenizer.render_chat(messages, add_generation_prompt=False) == "<s>user:he<end>"
    assert tokenizer.render_chat(messages, tools=["find"]) == "find<s><end>"  # type: ignore[list-item]
    ids = tokenizer.encode_chat(messages)
    assert ids.count(tokenizer.bos_id) == 2  # the template's own, one a turn; none is added before it
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s>user:he<end><s>assistant:"


def test_pieces_merge_by_score(tmp_path: Path, piece_metadata: dict[str, object]) -> None:
    tokenizer = build(tmp_path, piece_metadata)
    assert spelled(piece_metadata, tokenizer.encode("hello hello")) == ["<s>", "▁hello", "▁hello"]
    assert spelled(piece_metadata, tokenizer.encode("hell", add_special_tokens=False)) == ["▁", "hell"]


def test_pieces_fall_back_to_bytes(tmp_path: Path, piece_metadata: dict[str, object]) -> None:
    tokenizer = build(tmp_path, piece_metadata)
    ids = tokenizer.encode("é\n", add_special_tokens=False)
    assert spelled(piece_metadata, ids) == ["▁", "<0xC3>", "<0xA9>", "<0x0A>"]
    assert tokenizer.decode(ids) == "é\n"


@pytest.mark.parametrize("text", ["", "hello", " hello", "  hello ", "h\n e", "漢 🤗", "<0x41>"])
def test_piece_text_survives(tmp_path: Path, piece_metadata: dict[str, object], text: str) -> None:
    tokenizer = build(tmp_path, piece_metadata)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_file_may_want_no_leading_space(tmp_path: Path, piece_metadata: dict[str, object]) -> None:
    tokenizer = build(tmp_path, piece_metadata, add_space_prefix=False)
    ids = tokenizer.encode("hello", add_special_tokens=False)
    assert spelled(piece_metadata, ids) == ["hello"]
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"


def test_pieces_that_users_defined_are_found_in_text(tmp_path: Path, piece_metadata: dict[str, object]) -> None:
    tokens = [*piece_metadata["tokenizer.ggml.tokens"], "▁▁"]  # type: ignore[misc]
    tokenizer = build(
        tmp_path, piece_metadata, tokens=tokens, add_space_prefix=False,
        token_type=np.append(piece_metadata["tokenizer.ggml.token_type"], np.int32(4)),  # type: ignore[call-overload]
        scores=np.append(piece_metadata["tokenizer.ggml.scores"], np.float32(0)),  # type: ignore[call-overload]
    )  # fmt: skip
    ids = tokenizer.encode("hello  hello", add_special_tokens=False)
    assert [tokens[token_id] for token_id in ids] == ["hello", "▁▁", "hello"]
    assert tokenizer.decode(ids) == "hello  hello"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": None}, CheckpointError, r"tokenizer\.ggml\.model is missing"),
        ({"model": "t5"}, UnsupportedError, "kind 't5'; this build reads gpt2"),
        ({"model": 3}, CheckpointError, "model is a int, not a str"),
        ({"pre": "no-such"}, UnsupportedError, "'no-such'; this build knows"),
        ({"pre": None}, UnsupportedError, "before April 2024"),
        ({"tokens": None}, CheckpointError, "tokens is missing"),
        ({"tokens": np.arange(3)}, CheckpointError, "tokens is a ndarray"),
        ({"tokens": [["a"], ["b"]], "token_type": None}, CheckpointError, "tokens holds no strings"),
        ({"tokens": ["a", "b", "a"], "token_type": None}, CheckpointError, "'a' occurs twice"),
        ({"token_type": np.ones(3, np.int32)}, CheckpointError, "token_type has 3 entries for 264 tokens"),
        ({"merges": None}, CheckpointError, "merges is missing"),
        ({"merges": ["he"]}, CheckpointError, "not two tokens"),
        ({"merges": ["he q"]}, CheckpointError, "do not fit together"),
        ({"eos_token_id": 264}, CheckpointError, "eos_token_id is 264, but there are 264 tokens"),
        ({"bos_token_id": -1}, CheckpointError, "bos_token_id is -1"),
        ({"add_bos_token": 1}, CheckpointError, "add_bos_token is a int, not a bool"),
    ],
)
def test_damage_is_named(
    tmp_path: Path,
    byte_level_metadata: dict[str, object],
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        build(tmp_path, byte_level_metadata, **changes)


def test_lone_surrogates_are_no_text(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="surrogate"):
        build(tmp_path, byte_level_metadata).encode("a\ud800")


def test_ids_are_not_negative(tmp_path: Path, byte_level_metadata: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="token id -1"):
        build(tmp_path, byte_level_metadata).decode([-1])
