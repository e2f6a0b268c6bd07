"""Tiny models with random weights, as GGUF files that the whole engine can run.

They have a byte-level vocabulary of 300 tokens, so any text can be encoded, and
weights large enough that every part of the model shows in the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headstart.checkpoint.kinds import KINDS
from headstart.checkpoint.spelling import byte_characters
from headstart.checkpoint.tensor import Tensor
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.quantise import make_tensor

VOCAB_SIZE = 300
MAX_CONTEXT = 512

_NORMAL, _CONTROL = 1, 3
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_gguf(
    path: Path,
    *,
    kind: str = "Q8_0",
    seed: int = 0,
    family: str = "llama",
    num_layers: int = 2,
    tied: bool = True,
    biases: bool = False,
    window: int = 0,
    rotary_factors: bool = False,
    metadata: Mapping[str, object] | None = None,
) -> Path:
    """Write a model of 4 heads that share 2 key heads.

    Args:
        path: where to.
        kind: of every matrix; norms and biases are F32.
        seed: another seed is another model.
        family: "llama", "qwen2", "qwen3" or "mistral", with the biases and
            head norms that the family always has.
        num_layers: transformer blocks.
        tied: whether the unembedding is the embedding.
        biases: on every projection, where the family leaves it open.
        window: positions that a row sees; 0 is all.
        rotary_factors: divide rotary frequencies by factors, as llama3 files do.
        metadata: further or other key-values of the file.

    Returns:
        `path`.
    """
    layout = KINDS[kind]
    # blocks of 256 values fill whole rows only in a wider model
    hidden_size, head_dim, intermediate_size = (256, 64, 512) if layout.block_values == 256 else (64, 16, 96)
    keys: dict[str, object] = {
        "general.architecture": family,
        f"{family}.block_count": num_layers,
        f"{family}.context_length": MAX_CONTEXT,
        f"{family}.embedding_length": hidden_size,
        f"{family}.feed_forward_length": intermediate_size,
        f"{family}.attention.head_count": 4,
        f"{family}.attention.head_count_kv": 2,
        f"{family}.attention.key_length": head_dim,
        f"{family}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{family}.rope.freq_base": 10000.0,
        f"{family}.rope.dimension_count": head_dim,
        **({f"{family}.attention.sliding_window": window} if window else {}),
        **_vocabulary(),
        **(metadata or {}),
    }
    weights = _Weights(np.random.default_rng(seed), kind)
    weights.matrix("token_embd", VOCAB_SIZE, hidden_size)
    if rotary_factors:
        weights.tensors.append(make_tensor("rope_freqs.weight", 1 + np.arange(head_dim // 2) ** 2 / 8))
    for layer in range(num_layers):
        _add_block(weights, f"blk.{layer}", family, biases, hidden_size, head_dim, intermediate_size)
    weights.vector("output_norm.weight", hidden_size, around=1.0)
    if not tied:
        weights.matrix("output", VOCAB_SIZE, hidden_size)
    write_gguf(path, keys, weights.tensors)
    return path


class _Weights:
    def __init__(self, random: np.random.Generator, kind: str) -> None:
        self.tensors: list[Tensor] = []
        self._random = random
        self._kind = kind

    def matrix(self, name: str, num_outputs: int, num_inputs: int, *, bias: bool = False) -> None:
        spread = (2.0 if name == "token_embd" else 1.2) / np.sqrt(num_inputs)
        values = self._random.normal(0.0, spread, (num_outputs, num_inputs))
        self.tensors.append(make_tensor(f"{name}.weight", values, self._kind))
        if bias:
            self.vector(f"{name}.bias", num_outputs)

    def vector(self, name: str, size: int, around: float = 0.0) -> None:
        self.tensors.append(make_tensor(name, around + self._random.normal(0.0, 0.3, size)))


def _add_block(
    weights: _Weights, name: str, family: str, biases: bool, hidden_size: int, head_dim: int, intermediate_size: int
) -> None:
    weights.vector(f"{name}.attn_norm.weight", hidden_size, around=1.0)
    qkv_bias = family == "qwen2" or biases
    weights.matrix(f"{name}.attn_q", 4 * head_dim, hidden_size, bias=qkv_bias)
    weights.matrix(f"{name}.attn_k", 2 * head_dim, hidden_size, bias=qkv_bias)
    weights.matrix(f"{name}.attn_v", 2 * head_dim, hidden_size, bias=qkv_bias)
    if family == "qwen3":
        weights.vector(f"{name}.attn_q_norm.weight", head_dim, around=1.0)
        weights.vector(f"{name}.attn_k_norm.weight", head_dim, around=1.0)
    weights.matrix(f"{name}.attn_output", hidden_size, 4 * head_dim, bias=biases)
    weights.vector(f"{name}.ffn_norm.weight", hidden_size, around=1.0)
    weights.matrix(f"{name}.ffn_gate", intermediate_size, hidden_size, bias=biases)
    weights.matrix(f"{name}.ffn_up", intermediate_size, hidden_size, bias=biases)
    weights.matrix(f"{name}.ffn_down", hidden_size, intermediate_size, bias=biases)


def _vocabulary() -> dict[str, Any]:
    """All bytes, frequent pairs and words of English, and the marks of a chat."""
    characters = byte_characters()
    alphabet = sorted(characters, key=characters.__getitem__)  # by byte
    space = alphabet[ord(" ")]
    merges = [
        "t h", "th e", "a n", "an d", "i n", "in g", "o n", "e r", "r e", "o u", "o r", "e n", "e s", "s t",
        *(f"{space} {word}" for word in ("t", "a", "the", "and", "s", "o", "w", "in", "c", "b")),
        "l l", "h e", "e d", "i s", "i t", "a t", "a r", "o f", "l e", "n o", "t o", "v e", "c h", "ou t", "a l",
        "m e", "s e",
    ]  # fmt: skip
    words = [merge.replace(" ", "") for merge in merges]
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*alphabet, *words, *marks]
    assert len(tokens) == len(set(tokens)) == VOCAB_SIZE, len(tokens)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([_NORMAL] * (256 + len(words)) + [_CONTROL] * len(marks), np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _CHAT_TEMPLATE,
    }
