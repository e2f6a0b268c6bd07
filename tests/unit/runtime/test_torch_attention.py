from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headstart.architectures.program import Attention, Value

torch = pytest.importorskip("torch")

from headstart.runtime.torch_attention import CausalAttention  # noqa: E402
from headstart.runtime.torch_runtime import TextBatch  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

HEADS, KEYS, DIM = 4, 2, 8


def windows(*lengths: list[int]) -> TextBatch:
    """A window for each list, of documents of these lengths."""
    documents = torch.tensor([[number for number, length in enumerate(row) for _ in range(length)] for row in lengths])
    positions = torch.tensor([[place for length in row for place in range(length)] for row in lengths])
    return TextBatch(torch.zeros_like(documents), documents, positions)


def drawn(text: TextBatch, dim: int = DIM, dtype: Any = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of some text, laid out as projections leave them."""
    generator = torch.Generator().manual_seed(1)
    rows = text.tokens.shape
    q, k, v = (torch.randn(*rows, heads, dim, generator=generator) for heads in (HEADS, KEYS, KEYS))
    return tuple(tensor.to(dtype).transpose(1, 2) for tensor in (q, k, v))


def attention(window: int = 0, dim: int = DIM) -> Attention:
    value = Value(0, HEADS * dim, wanted_only=False)
    sizes = {"num_heads": HEADS, "num_kv_heads": KEYS, "head_dim": dim, "scale": dim**-0.5}
    return Attention(value, value, value, value, layer=0, window=window, **sizes)


@pytest.mark.parametrize("window", [0, 3])
def test_neighbours_of_one_length_are_mixed_as_if_alone(window: int) -> None:
    text = windows([12], [12], [4, 4, 4], [5, 7], [12])
    q, k, v = drawn(text)
    together = CausalAttention(text)(attention(window), q, k, v)
    for row, lengths in enumerate(([12], [12], [4, 4, 4], [5, 7], [12])):
        begin = 0
        for length in lengths:
            piece = slice(begin, begin + length)
            own = tuple(tensor[row : row + 1, :, piece] for tensor in (q, k, v))
            alone = CausalAttention(windows([length]))(attention(window), *own)
            assert torch.equal(together[row, :, piece], alone[0])
            begin += length


@pytest.mark.parametrize(("dim", "wide"), [(32, torch.float32), (64, torch.bfloat16)])
def test_narrow_heads_are_mixed_in_float32_whatever_the_products_are_in(dim: int, wide: Any) -> None:
    text = windows([24])
    q, k, v = drawn(text, dim, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = CausalAttention(text)(attention(dim=dim), q, k, v)
    assert found.dtype == torch.bfloat16
    expected = CausalAttention(text)(attention(dim=dim), q.to(wide), k.to(wide), v.to(wide))
    assert torch.equal(found, expected.bfloat16())
