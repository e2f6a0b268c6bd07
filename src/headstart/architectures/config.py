"""What a trunk of the supported families looks like, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.architectures.rotary import RotaryConfig
from headstart.errors import UnsupportedError


@dataclass(frozen=True, kw_only=True, slots=True)
class TrunkConfig:
    """Sizes and choices of a decoder-only transformer.

    Attributes:
        family: "llama", "qwen2", "qwen3" or "mistral".
        vocab_size: rows of the embedding; may exceed the tokenizer's.
        hidden_size: width of the residual stream.
        num_layers: transformer blocks.
        num_heads, num_kv_heads, head_dim: of attention; heads share keys in equal groups.
        intermediate_size: width inside the gated MLP.
        norm_eps: of every RMSNorm.
        max_context: positions the model was made for.
        rotary: position embedding.
        windows: for each layer, positions it sees (0: all).
        qkv_bias, output_bias, mlp_bias: whether those projections have biases.
        head_norms: whether queries and keys are normalised head by head.
        tied: whether the unembedding is the embedding.
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float
    max_context: int
    rotary: RotaryConfig
    windows: tuple[int, ...]
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False
    tied: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that the kernels cannot run.

        Raises:
            UnsupportedError: a width is not a multiple of what a vector holds.
        """
        for name, value, multiple in (
            ("hidden size", self.hidden_size, 32),
            ("intermediate size", self.intermediate_size, 32),
            ("width of all heads", self.num_heads * self.head_dim, 32),
            ("head dimension", self.head_dim, 16),
        ):
            if value <= 0 or value % multiple:
                raise UnsupportedError(f"The {name} is {value}; it must be a positive multiple of {multiple}.")
        if self.num_kv_heads <= 0 or self.num_heads % self.num_kv_heads:
            raise UnsupportedError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} key heads in equal groups."
            )
        if self.rotary.dim > self.head_dim or self.rotary.dim % 2 or self.rotary.dim <= 0:
            raise UnsupportedError(f"{self.rotary.dim} of {self.head_dim} dimensions of a head cannot be rotated.")
