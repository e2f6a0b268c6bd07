"""Next-token training as one writes it in plain PyTorch: the side that `training_throughput.py` measures against.

Nothing of it is this project's, and nothing is left out that makes such a loop fast: attention in PyTorch's fused
kernel, AdamW in one pass over the weights, gradients set to none. Windows are taken as one text each; borders of
documents are ignored, as plain loops do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from headstart.architectures.config import TrunkConfig


class PlainAttention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.num_heads * config.head_dim
        self.heads = config.num_heads
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )  # fmt: skip
        q, k = _turned(q, cosine, sine), _turned(k, cosine, sine)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return projected


class PlainBlock(nn.Module):
    """Attention and a gated MLP, each on a norm of what came before."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(width, config.norm_eps) for _ in range(2))
        self.attention = PlainAttention(config)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))  # type: ignore[no-any-return]


class PlainModel(nn.Module):
    """A llama-like model of a trunk's sizes, as a module of modules."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(PlainBlock(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.unembedding = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, 0.0, 0.02)
        if config.tied:
            self.unembedding.weight = self.embedding.weight
        frequencies = config.rotary.theta ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
        angles = torch.arange(config.max_context)[:, None] * frequencies
        self.register_buffer("cosine", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sine", angles.sin().repeat(1, 2), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of the next token, in mean over [B, T] tokens but each window's first."""
        x = self.embedding(tokens)
        cosine, sine = (
            table[: tokens.shape[1]].to(x.dtype) for table in (self.get_buffer("cosine"), self.get_buffer("sine"))
        )
        for block in self.blocks:
            x = block(x, cosine, sine)
        logits = self.unembedding(self.norm(x)[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class TransformersModel(nn.Module):
    """The same model as the library of that name has it."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        from headstart.architectures.huggingface_config import huggingface_config

        settings = huggingface_config(config) | {"attn_implementation": "sdpa"}
        self.model = LlamaForCausalLM(LlamaConfig(**settings))

    def forward(self, tokens: Tensor) -> Tensor:
        """The same loss."""
        loss: Tensor = self.model(input_ids=tokens, labels=tokens, use_cache=False).loss
        return loss


class PlainLoop:
    """A model and its optimiser."""

    def __init__(
        self, model: nn.Module, *, learning_rate: float, weight_decay: float, max_norm: float, bfloat16: bool
    ) -> None:
        self.model, self._max_norm, self._bfloat16 = model.train(), max_norm, bfloat16
        self._rate, self._steps = learning_rate, 0
        parameters = list(model.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [weight for weight in parameters if weight.ndim == 2], "weight_decay": weight_decay},
            {"params": [weight for weight in parameters if weight.ndim != 2], "weight_decay": 0.0},
        ]
        self._optimiser = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)

    def step(self, tokens: Tensor) -> float:
        """One step on windows [B, T]; their loss."""
        with self._precision():
            loss: Tensor = self.model(tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), self._max_norm)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return loss.item()

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16) if self._bfloat16 else nullcontext()


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine
