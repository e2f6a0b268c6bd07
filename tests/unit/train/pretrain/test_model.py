from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headstart.architectures.heads import HeadsConfig
from headstart.train.corpus import PackedWindows
from headstart.train.pretrain.config import DataConfig, PretrainConfig
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from headstart.runtime.torch_attention import CausalAttention  # noqa: E402
from headstart.runtime.torch_runtime import TextBatch, run_program, shifted  # noqa: E402
from headstart.train.pretrain.batch import LabelledText, count_rows, labelled_text, labels  # noqa: E402
from headstart.train.pretrain.blueprint import make_blueprint  # noqa: E402
from headstart.train.pretrain.parts import make_model  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

    from headstart.train.pretrain.model import PretrainModel

VOCABULARY = 23
KINDS: dict[str, dict[str, Any]] = {
    "parallel": {},
    "parallel, own unembeddings": {"own_unembedding": True},
    "linear": {"form": "linear"},
    "sequential": {"kind": "sequential"},
    "unrolled": {"kind": "sequential", "unrolled": True},
}


def tiny(n: int = 4, *, tied: bool = False, layers: int = 2, seed: int = 0, **heads: Any) -> PretrainModel:
    sizes = ModelConfig(hidden_size=32, num_layers=layers, num_heads=2, intermediate_size=32, tied=tied)
    config = PretrainConfig(model=sizes, heads=PretrainHeads(n=n, **heads), data=DataConfig(path="none", window=16))
    return make_model(make_blueprint(config, VOCABULARY), seed).double()


def windows(lengths: Sequence[Sequence[int]], seed: int = 0) -> LabelledText:
    """Windows of documents of these lengths, tokens at random, some of them not to be learnt."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), sum(lengths[0]))
    documents = np.array([np.repeat(np.arange(len(row)), row) for row in lengths], np.int32)
    positions = np.array([np.concatenate([np.arange(length) for length in row]) for row in lengths], np.int32)
    packed = PackedWindows(
        tokens=random.integers(0, VOCABULARY, shape).astype(np.int32),
        documents=documents,
        positions=positions,
        supervised=random.random(shape) < 0.9,
    )
    return labelled_text(packed, torch.device("cpu"))


def naive_losses(model: PretrainModel, batch: LabelledText) -> list[tuple[Tensor, Tensor]]:
    """Of the trunk and each depth: cross-entropy of every row that learns, [rows], with all logits at once."""
    trunk, heads = model.trunk, model.heads
    said = trunk(batch.text)
    found = [_cross_entropy(said.states @ trunk.unembedding.T, *labels(None, batch, 0))]
    if heads is not None:
        for output in heads(batch.text, said.taps, trunk_weights=trunk.weights()):
            logits = output.hidden @ output.unembedding.T
            found.append(_cross_entropy(logits, *labels(heads.config, batch, output.depth)))
    return found


def _cross_entropy(logits: Tensor, targets: Tensor, learns: Tensor) -> tuple[Tensor, Tensor]:
    return functional.cross_entropy(logits[learns], targets[learns], reduction="none"), learns


def gradients(model: PretrainModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.weights().items() if weight.grad is not None}


PACKED = [[5, 11], [16]], [[3, 2, 7, 4], [1, 15]]


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", PACKED, ids=["few", "many"])
def test_loss_and_gradients_are_those_of_naive_autograd(kind: str, tied: bool, lengths: list[list[int]]) -> None:
    model, batch = tiny(tied=tied, **KINDS[kind]), windows(lengths)
    weights = (0.7, 0.5, 0.25)
    naive = [losses.mean() for losses, _ in naive_losses(model, batch)]
    expected = sum(w * loss for w, loss in zip((1.0, *weights), naive, strict=True))
    wanted = gradients(model, expected)
    counts = count_rows(model.heads_config, batch, 3)
    found = model(batch, weights, counts)
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-12)
    means = [loss / count for loss, count in zip(found.losses.tolist(), counts, strict=True)]
    assert means == pytest.approx([loss.item() for loss in naive], rel=1e-12)
    got = gradients(model, found.loss)
    assert got.keys() == wanted.keys() == model.weights().keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_teach_what_they_borrow_and_what_they_stand_on(kind: str) -> None:
    model, batch = tiny(**KINDS[kind]), windows([[16], [16]])
    counts = count_rows(model.heads_config, batch, 3)
    alone = gradients(model, model(batch, (), counts[:1]).loss)
    both = gradients(model, model(batch, (1.0, 1.0, 1.0), counts).loss)
    read = ["trunk.layers.0.mlp.down", "trunk.embedding"]
    read += [] if "own" in kind else ["trunk.unembedding"]
    read += [] if kind.startswith("parallel") else ["trunk.layers.1.mlp.down"]
    for name in read:
        assert (both[name] - alone[name]).abs().max() > 1e-6, name
    if kind.startswith("parallel"):  # the trunk's last block is its own head
        torch.testing.assert_close(both["trunk.layers.1.mlp.down"], alone["trunk.layers.1.mlp.down"])


def test_one_token_ahead_is_a_plain_loop_to_the_last_bit() -> None:
    """A loop without any head code, whose only parts are the trunk's program and the shared loss."""
    from headstart.train.chunked import chunked_loss
    from headstart.train.loss_mix import LossMix
    from headstart.train.targets import future_targets

    ours, plain = (tiny(1).float() for _ in range(2))
    for seed in range(3):
        batch = windows([[5, 11], [16]], seed)
        targets, valid = future_targets(batch.text.tokens, batch.text.documents, batch.supervised, 1)
        count = int(valid.sum())
        states = plain.trunk(batch.text).states.flatten(0, 1)
        expected = chunked_loss(
            states, plain.trunk.unembedding, LossMix(ce=1.0),
            row_weights=valid.flatten() / count, labels=targets.flatten(),
        ).loss  # fmt: skip
        found = ours(batch, (), count_rows(None, batch, 0)).loss
        assert found.item() == expected.item()
        for model, loss in ((ours, found), (plain, expected)):
            loss.backward()
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= 0.1 * weight.grad
                    weight.grad = None
    for name, weight in ours.weights().items():
        assert torch.equal(weight, plain.weights()[name]), name


def test_a_loss_worked_out_by_hand() -> None:
    """A model that says the same of everything: uniform over 23 tokens, at every depth."""
    model = tiny()
    with torch.no_grad():
        model.trunk.unembedding.zero_()
    batch = windows([[16]])
    counts = count_rows(model.heads_config, batch, 3)
    found = model(batch, (0.5, 0.25, 0.125), counts)
    assert found.loss.item() == pytest.approx((1 + 0.5 + 0.25 + 0.125) * np.log(23))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_documents_never_leak(kind: str) -> None:
    """Losses of a window of two documents are those of each alone, and no gradient crosses the border."""
    model, packed = tiny(**KINDS[kind]), windows([[7, 9]])
    parts = [_cut(packed, 0, 7), _cut(packed, 7, 16)]
    for depth in range(4):
        together = naive_losses(model, packed)[depth][0]
        alone = torch.cat([naive_losses(model, part)[depth][0] for part in parts])
        torch.testing.assert_close(together, alone, rtol=1e-11, atol=0)
    counts = count_rows(model.heads_config, packed, 3)
    sums = [torch.zeros(4, dtype=torch.float64), model(packed, (1.0,) * 3, counts).losses]
    for part in parts:
        sums[0] += model(part, (1.0,) * 3, count_rows(model.heads_config, part, 3)).losses
    torch.testing.assert_close(*sums, rtol=1e-11, atol=0)
    changed = LabelledText(
        TextBatch(packed.text.tokens.clone(), packed.text.documents, packed.text.positions), packed.supervised
    )
    changed.text.tokens[0, 7:] = (changed.text.tokens[0, 7:] + 1) % VOCABULARY
    for depth in range(4):
        before, after = (naive_losses(model, batch)[depth] for batch in (packed, changed))
        first = int(before[1][0, :7].sum())
        assert torch.equal(before[0][:first], after[0][:first])


def _cut(batch: LabelledText, begin: int, end: int) -> LabelledText:
    text = batch.text
    fields = (tensor[:, begin:end] for tensor in (text.tokens, text.documents, text.positions))
    return LabelledText(TextBatch(*fields), batch.supervised[:, begin:end])


def test_each_head_is_taught_the_token_that_it_is_asked_for() -> None:
    """Row t knows the states up to t - 1: parallel head k of row t learns token t + k, modules in sequence t + 1."""
    batch = windows([[16]])
    tokens = batch.text.tokens[0]
    everything = LabelledText(batch.text, torch.ones_like(batch.supervised))
    sizes: dict[str, Any] = {"depth": 3, "taps": (1,), "hidden_stage": "pre_norm", "intermediate_size": 32}
    parallel = HeadsConfig(kind="parallel", num_modules=3, **sizes)
    sequential = HeadsConfig(kind="sequential", num_modules=3, **sizes)
    for depth in (1, 2, 3):
        targets, learns = labels(parallel, everything, depth)
        assert targets[learns].tolist() == tokens[1 + depth :].tolist()
        assert learns[0].nonzero()[:, 0].tolist() == list(range(1, 16 - depth))
        targets, learns = labels(sequential, everything, depth)
        assert targets[learns].tolist() == tokens[1 + depth :].tolist()
        assert learns[0].nonzero()[:, 0].tolist() == list(range(depth, 15))


def test_a_gradient_does_not_depend_on_how_a_batch_is_cut() -> None:
    model, batch = tiny(), windows([[3, 2, 7, 4], [1, 15], [16], [8, 8]])
    counts = count_rows(model.heads_config, batch, 3)
    whole = gradients(model, model(batch, (1.0, 0.5, 0.2), counts).loss)
    parts = batch.split(1)
    assert sum(len(part) for part in parts) == len(batch)
    in_parts = gradients(model, sum(model(part, (1.0, 0.5, 0.2), counts).loss for part in parts))
    for name, gradient in whole.items():
        torch.testing.assert_close(in_parts[name], gradient, rtol=1e-10, atol=1e-13, msg=name)


def test_fewer_depths_are_run_during_a_curriculum() -> None:
    for kind in KINDS.values():
        model, batch = tiny(**kind), windows([[16]])
        counts = count_rows(model.heads_config, batch, 3)
        all_depths = model(batch, (1.0, 1.0, 1.0), counts)
        first = model(batch, (1.0,), counts[:2])
        torch.testing.assert_close(first.losses, all_depths.losses[:2])
        trained = gradients(model, first.loss)
        assert not any(name.startswith(("heads.modules.1", "heads.modules.2")) for name in trained)
        assert any(name.startswith("heads.modules.0") for name in trained)


def test_parallel_heads_read_the_layer_below_the_trunks_last() -> None:
    """All heads, the trunk's last block included, stand on the same states."""
    model, batch = tiny(layers=3), windows([[16]])
    heads = model.heads
    assert heads is not None
    said = model.trunk(batch.text)
    from headstart.architectures.decoder import decoder_program

    program = decoder_program(model.trunk.config, (0, 1, 2, 3))
    attend = CausalAttention(batch.text)
    kept = run_program(program, model.trunk.weights(), model.trunk.config.rotary, batch.text, attend).kept
    assert torch.equal(said.taps, kept[..., 64:96])
    assert heads.config.taps == (2,)
    moved = shifted(said.taps, batch.text)
    assert torch.equal(moved[:, 1:], said.taps[:, :-1])
