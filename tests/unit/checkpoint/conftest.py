"""Vocabularies small enough to read, as the key-values of a GGUF file."""

from __future__ import annotations

import numpy as np
import pytest

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def byte_alphabet() -> list[str]:
    """GPT-2's character for each byte, written anew rather than taken from the code under test."""
    plain = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    rest = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)]


@pytest.fixture
def byte_level_metadata() -> dict[str, object]:
    """256 bytes, the words "he", "hell", "hello" and " he", and three special tokens."""
    space = byte_alphabet()[ord(" ")]
    words = ["he", "ll", "hell", "hello", space + "he"]
    marks = ["<s>", "<end>", "<tool>"]
    tokens = [*byte_alphabet(), *words, *marks]
    types = [NORMAL] * (256 + len(words)) + [CONTROL, CONTROL, USER_DEFINED]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o", f"{space} he"],
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<end>"),
        "tokenizer.chat_template": "{% for m in messages %}<s>{{ m['role'] }}:{{ m['content'] }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant:{% endif %}",
    }


@pytest.fixture
def piece_metadata() -> dict[str, object]:
    """SentencePiece: all bytes, a few letters, and pieces with falling scores."""
    scored = ["he", "ll", "hell", "hello", "▁he", "▁hello"]
    letters = ["▁", "h", "e", "l", "o"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *scored, *letters]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(scored) + len(letters))
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(scored) + len(letters))]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
