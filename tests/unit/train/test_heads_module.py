"""Heads over packed windows: each document as if alone, gradients included; what is theirs and what is the trunk's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from headstart.errors import ConfigError  # noqa: E402
from headstart.runtime import torch_attention  # noqa: E402
from headstart.testing.tiny_heads import TINY_HEADS  # noqa: E402

DEPTH = 3
LENGTHS = [9, 4, 2, 6]
OF_ALL_DEPTHS = [name for name in TINY_HEADS if name != "sequential, one module"]
RECURRENT = [name for name in OF_ALL_DEPTHS if name.startswith(("sequential", "eagle"))]


def weighted_outputs(lab: Any, heads: Any, window: int) -> tuple[list[Tensor], list[Tensor]]:
    """Valid outputs of each depth, document by document; and the gradients of a sum that tells them all apart."""
    windows = lab.pack(lab.documents(LENGTHS, seed=3), window)
    batch = lab.batch(windows, taps=heads.config.taps)
    found: list[Tensor] = []
    total = torch.zeros((), dtype=lab.dtype)
    for output in heads(batch.text, batch.taps, DEPTH):
        logits = output.hidden @ output.unembedding.T
        for piece in sorted((piece for held in windows.pieces for piece in held), key=lambda piece: piece.document):
            inside = slice(piece.place, piece.place + piece.length)
            rows = logits[piece.window, inside][output.valid[piece.window, inside]]
            found.append(rows.detach())
            total = total + (rows * torch.linspace(-1, 1, rows.numel(), dtype=lab.dtype).reshape(rows.shape)).sum()
    heads.zero_grad()
    total.backward()
    return found, [weight.grad.clone() for weight in heads.own_weights().values()]


@pytest.mark.parametrize("name", OF_ALL_DEPTHS)
def test_packed_documents_are_run_as_if_alone(name: str, lab: Any) -> None:
    """One window for all, one for each, and one with much padding: the same outputs and gradients."""
    heads = lab.heads(name)
    packed = weighted_outputs(lab, heads, window=sum(LENGTHS))
    assert len({tuple(rows.shape) for rows in packed[0]}) > 1
    for window in (max(LENGTHS), 2 * sum(LENGTHS)):
        torch.testing.assert_close(weighted_outputs(lab, heads, window), packed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RECURRENT)
def test_how_many_rows_of_a_chain_are_mixed_at_once_does_not_matter(
    name: str, lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = lab.heads(name)
    expected = weighted_outputs(lab, heads, window=sum(LENGTHS))
    for rows in (1, 4):
        monkeypatch.setattr(torch_attention, "_QUERY_ROWS", rows)
        found = weighted_outputs(lab, heads, window=sum(LENGTHS))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TINY_HEADS)
def test_a_row_hears_only_of_its_own_document_and_its_past(name: str, lab: Any) -> None:
    heads = lab.heads(name)
    batch = lab.batch(lab.pack(lab.documents([8, 6]), 14), taps=heads.config.taps)
    taps = batch.taps.clone().requires_grad_()
    row = 8 + 3  # the fourth of the second document
    for output in heads(batch.text, taps):
        (gradient,) = torch.autograd.grad(output.hidden[0, row].sum(), taps, retain_graph=True)
        heard = gradient[0].abs().sum(1).nonzero()[:, 0].tolist()
        # the state of the token before it, and for those with attention all before that one
        assert heard, output.depth
        assert 8 <= min(heard) <= max(heard) <= row - (output.depth if heads.config.recurrent else 1)


@pytest.mark.parametrize("name", RECURRENT)
def test_deeper_guesses_train_the_depths_before_them_through_what_is_recycled(name: str, lab: Any) -> None:
    """The first depth alone reads taps, so a gradient on them came through each recycled state."""
    heads = lab.heads(name)
    batch = lab.batch(lab.pack(lab.documents([8]), 8), taps=heads.config.taps)
    taps = batch.taps.clone().requires_grad_()
    features = []
    for output in heads(batch.text, taps, DEPTH):
        features.append(output.features)
    gradients = torch.autograd.grad(features[-1][0, 7].sum(), [*features[:-1], taps])
    for depth, gradient in enumerate(gradients[:-1], start=1):
        # row 7 of depth 3 reads row 6 of depth 2, and so on
        assert bool(gradient[0, 7 - (DEPTH - depth)].any()), depth
    assert bool(gradients[-1].any())


def test_borrowed_weights_are_the_trunks_own_memory_and_not_trained(lab: Any) -> None:
    heads = lab.heads("eagle3")
    borrowed = heads.all_weights().keys() - heads.own_weights().keys()
    assert borrowed == {"trunk.embedding", "trunk.unembedding"}
    for name in borrowed:
        weight = heads.all_weights()[name]
        assert weight.data_ptr() == lab.weights[name.removeprefix("trunk.")].data_ptr()
        assert not weight.requires_grad
    assert len(list(heads.parameters())) == len(heads.own_weights())


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [(None, "but 0 are named"), ([1, 2, 3], "but 3 are named"), ([5, 4, 9, 11], "ascending"),
     ([4, 4, 9, 11], "ascending"), ([4, 5, 9, 300], "0 to 299"), ([-1, 5, 9, 10], "0 to 299")],
)  # fmt: skip
def test_a_vocabulary_that_does_not_fit_is_refused(vocabulary: list[int] | None, message: str, lab: Any) -> None:
    from headstart.train.heads_module import HeadsModule

    fitting = lab.heads("eagle3", torch.arange(4))
    chosen = None if vocabulary is None else torch.tensor(vocabulary)
    with pytest.raises(ConfigError, match=message):
        HeadsModule(fitting.config, fitting.trunk_config, lab.weights, chosen)


@pytest.mark.parametrize("name", ["medusa", "parallel", "sequential, one module"])
def test_only_unrolled_modules_go_deeper_than_there_are_modules(name: str, lab: Any) -> None:
    heads = lab.heads(name)
    batch = lab.batch(lab.pack(lab.documents([8]), 8), taps=heads.config.taps)
    with pytest.raises(ConfigError, match="unrolled"):
        list(heads(batch.text, batch.taps, heads.config.depth + 1))
