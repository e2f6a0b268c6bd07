"""The loss of heads against loops over documents, rows and depths, with nothing packed, chunked or shared."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from headstart.runtime.torch_runtime import TextBatch  # noqa: E402
from headstart.testing.tiny_heads import TINY_HEADS  # noqa: E402
from headstart.train.heads_loss import HeadsLossConfig, TrainingBatch, heads_loss, learnt_rows  # noqa: E402
from headstart.train.heads_module import HeadsModule  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402
from headstart.train.losses import TrunkLogits, draft_losses  # noqa: E402

DEPTH_WEIGHTS = (1.0, 0.7, 0.4)
VOCABULARY = torch.arange(1, 300, 3)
LENGTHS = [7, 12, 3, 9, 5]
KINDS = ["parallel", "medusa, own", "sequential", "sequential, unrolled", "eagle", "eagle3, own"]


def counts_of(heads: Any, batches: list[TrainingBatch]) -> list[int]:
    return [
        sum(int(learnt_rows(heads.config, batch, depth).sum()) for batch in batches)
        for depth in range(1, len(DEPTH_WEIGHTS) + 1)
    ]


def trunk_rows(lab: Any, vocabulary: Tensor | None) -> Tensor:
    return lab.unembedding if vocabulary is None else lab.unembedding[vocabulary]


def config_of(mix: str, feature_weight: float = 0.0) -> HeadsLossConfig:
    return HeadsLossConfig(mix=LossMix.parse(mix), depth_weights=DEPTH_WEIGHTS, feature_weight=feature_weight)


def naive_targets(batch: TrainingBatch, depth: int, recurrent: bool) -> list[tuple[int, int, int]]:
    """(window, row, place of the guessed token) of all that a depth learns from, by a loop."""
    found = []
    for window, documents in enumerate(batch.text.documents.tolist()):
        for row, document in enumerate(documents):
            ahead = row + (1 if recurrent else depth)
            if document < 0 or ahead >= len(documents) or documents[ahead] != document:
                continue
            begins = recurrent and row - depth + 1 < documents.index(document)  # the chain would have begun outside
            if not begins and bool(batch.supervised[window, ahead]):
                found.append((window, row, ahead))
    return found


def naive_loss(lab: Any, heads: Any, batch: TrainingBatch, config: HeadsLossConfig, vocabulary: Tensor | None) -> Any:
    """The weighted sum over depths of means over rows."""
    total = torch.zeros((), dtype=lab.dtype)
    figures = []
    for output in heads(batch.text, batch.taps, len(DEPTH_WEIGHTS)):
        targets = naive_targets(batch, output.depth, heads.config.recurrent)
        losses = []
        correct, acceptance = 0, 0.0
        for window, row, ahead in targets:
            # what the trunk says of a token stands one place before it
            whole = lab.unembedding @ batch.trunk_states[window, ahead - 1]
            trunk = whole if vocabulary is None else whole[vocabulary]
            draft = output.unembedding @ output.hidden[window, row]
            normaliser = None if vocabulary is None else whole.logsumexp(0)[None]
            said = int(whole.argmax())
            ids = list(range(300)) if vocabulary is None else vocabulary.tolist()
            label = torch.tensor([ids.index(said) if said in ids else -100])
            loss = draft_losses(config.mix, draft[None], trunk=TrunkLogits(trunk[None], normaliser), labels=label)[0]
            correct += ids[int(draft.argmax())] == said
            true = trunk.sub(whole.logsumexp(0)).exp()
            acceptance += float(torch.minimum(draft.detach().softmax(0), true).sum())
            if config.feature_weight and output.features is not None:
                error = output.features[window, row].float() - batch.trunk_states[window, ahead - 1].float()
                smooth = torch.where(error.abs() < 1, error**2 / 2, error.abs() - 0.5).mean()
                loss = loss + config.feature_weight * smooth
            losses.append(loss)
        total = total + DEPTH_WEIGHTS[output.depth - 1] * torch.stack(losses).mean()
        figures.append((len(targets), correct, acceptance))
    return total, figures


def gradients_of(heads: Any, loss: Tensor) -> list[Tensor]:
    heads.zero_grad()
    loss.backward()
    return [weight.grad.clone() for weight in heads.own_weights().values()]


@pytest.mark.parametrize("name", TINY_HEADS)
def test_learnt_rows_are_those_of_a_naive_loop(name: str, lab: Any) -> None:
    config = lab.heads(name).config
    batch = lab.batch(lab.pack(lab.documents(LENGTHS), 14))
    assert bool((batch.text.documents < 0).any())
    for depth in range(1, 5):
        expected = torch.zeros_like(batch.supervised)
        for window, row, _ in naive_targets(batch, depth, config.recurrent):
            expected[window, row] = True
        assert bool(expected.any())
        assert torch.equal(learnt_rows(config, batch, depth), expected), depth


def test_the_mask_moves_with_its_target() -> None:
    """A prompt of 2 and an answer of 2, then a document of one token: the first answer's token is guessed from the
    prompt's last row, and the last row of a document guesses nothing, not even the token 0.
    """
    documents = torch.tensor([[0, 0, 0, 0, 1, -1]])
    batch = TrainingBatch(
        text=TextBatch(torch.tensor([[5, 6, 7, 0, 0, 0]]), documents, torch.tensor([[0, 1, 2, 3, 0, 0]])),
        supervised=torch.tensor([[False, False, True, True, True, True]]),
        taps=torch.zeros(1, 6, 64), trunk_states=torch.zeros(1, 6, 64), log_normaliser=torch.zeros(1, 6),
        likeliest=torch.zeros(1, 6, dtype=torch.int64),
    )  # fmt: skip
    from headstart.testing.tiny_heads import tiny_heads_config

    recurrent, others = tiny_heads_config("eagle3"), tiny_heads_config("medusa")
    assert learnt_rows(recurrent, batch, 1)[0].tolist() == [False, True, True, False, False, False]
    assert learnt_rows(recurrent, batch, 3)[0].tolist() == [False, False, True, False, False, False]
    assert learnt_rows(others, batch, 2)[0].tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
@pytest.mark.parametrize("name", KINDS)
def test_loss_gradients_and_figures_are_those_of_a_naive_sum(name: str, reduced: bool, lab: Any) -> None:
    vocabulary = VOCABULARY if reduced else None
    heads = lab.heads(name, vocabulary)
    batch = lab.batch(lab.pack(lab.documents(LENGTHS), 14), taps=heads.config.taps)
    config = config_of("0.5*ce+kl+0.3*tv", feature_weight=0.2 if name == "eagle" else 0.0)
    loss, sums = heads_loss(heads, batch, trunk_rows(lab, vocabulary), config, counts_of(heads, [batch]))
    found = gradients_of(heads, loss)
    expected, figures = naive_loss(lab, heads, batch, config, vocabulary)
    # the regression of features is in single precision
    tolerance = 1e-5 if config.feature_weight else 1e-6
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=tolerance)
    torch.testing.assert_close(found, gradients_of(heads, expected), rtol=1e-4, atol=tolerance)
    assert [(depth.num_rows, depth.num_correct) for depth in sums] == [figure[:2] for figure in figures]
    assert [depth.acceptance for depth in sums] == pytest.approx([figure[2] for figure in figures])


@pytest.mark.parametrize("name", ["parallel", "medusa", "parallel, linear"])
def test_heads_that_do_not_see_each_other_are_turned_back_one_by_one(
    name: str, lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one runs, what the one before it made is gone; so memory is that of one."""
    heads = lab.heads(name)
    batch = lab.batch(lab.pack(lab.documents(LENGTHS), 14), taps=heads.config.taps)
    alone, made = HeadsModule.alone, []

    def watched(*arguments: Any) -> Any:
        assert all(state() is None for state in made)
        output = alone(*arguments)
        made.append(weakref.ref(output.hidden))
        return output

    monkeypatch.setattr(HeadsModule, "alone", watched)
    loss, _ = heads_loss(heads, batch, lab.unembedding, config_of("kl"), counts_of(heads, [batch]))
    assert len(made) == 3
    assert all(bool(gradient.any()) for gradient in gradients_of(heads, loss))


@pytest.mark.parametrize("name", KINDS)
def test_every_weight_learns_something(name: str, lab: Any) -> None:
    heads = lab.heads(name)
    batch = lab.batch(lab.pack(lab.documents(LENGTHS), 14), taps=heads.config.taps)
    loss, _ = heads_loss(heads, batch, lab.unembedding, config_of("kl"), counts_of(heads, [batch]))
    for (own, _), gradient in zip(heads.own_weights().items(), gradients_of(heads, loss), strict=True):
        assert bool(gradient.any()), own


@pytest.mark.parametrize("name", KINDS)
def test_how_a_batch_is_cut_changes_nothing(name: str, lab: Any) -> None:
    """Windows with very different numbers of targets, one by one, in halves, and packed otherwise."""
    heads = lab.heads(name)
    documents = lab.documents(LENGTHS)
    config = config_of("kl")

    def summed(window: int, micro_windows: int) -> tuple[float, list[Tensor]]:
        windows = lab.pack(documents, window)
        indices = list(range(len(windows)))
        parts = [indices[start : start + micro_windows] for start in range(0, len(indices), micro_windows)]
        batches = [lab.batch(windows, part, taps=heads.config.taps) for part in parts]
        counts = counts_of(heads, batches)
        losses = [heads_loss(heads, batch, lab.unembedding, config, counts)[0] for batch in batches]
        total = torch.stack(losses).sum()
        return float(total.detach()), gradients_of(heads, total)

    whole = summed(12, 100)
    for window, micro_windows in ((12, 1), (12, 2), (36, 100), (17, 1)):
        loss, gradients = summed(window, micro_windows)
        assert loss == pytest.approx(whole[0], rel=1e-6)
        torch.testing.assert_close(gradients, whole[1], rtol=1e-6, atol=1e-9)


def test_a_micro_batch_without_targets_adds_nothing(lab: Any) -> None:
    heads = lab.heads("eagle3")
    batch = lab.batch(lab.pack(lab.documents(LENGTHS), 14), taps=heads.config.taps)
    empty = replace(batch, supervised=torch.zeros_like(batch.supervised))
    loss, sums = heads_loss(heads, empty, lab.unembedding, config_of("kl"), [0, 0, 0])
    assert float(loss.detach()) == 0
    assert not any(bool(gradient.any()) for gradient in gradients_of(heads, loss))
    assert [depth.num_rows for depth in sums] == [0, 0, 0]


def test_what_is_not_learnt_from_does_not_matter(lab: Any) -> None:
    """Tokens of padding, and what the trunk says where nothing is guessed."""
    heads = lab.heads("eagle3", VOCABULARY)
    batch = lab.batch(lab.pack(lab.documents(LENGTHS), 14), taps=heads.config.taps)
    unembedding, counts = trunk_rows(lab, VOCABULARY), counts_of(heads, [batch])
    loss, _ = heads_loss(heads, batch, unembedding, config_of("kl"), counts)
    expected = float(loss.detach()), gradients_of(heads, loss)
    padding = batch.text.documents < 0
    unread = ~learnt_rows(heads.config, batch, 1)
    random = torch.Generator().manual_seed(1)
    noise = torch.randn(batch.trunk_states.shape, generator=random, dtype=lab.dtype)
    changed = replace(
        batch,
        text=replace(batch.text, tokens=batch.text.tokens.masked_fill(padding, 123)),
        taps=batch.taps.masked_fill(padding[..., None], 3.0),
        trunk_states=torch.where(unread[..., None], noise, batch.trunk_states),
        likeliest=batch.likeliest.masked_fill(unread, 7),
    )
    loss, _ = heads_loss(heads, changed, unembedding, config_of("kl"), counts)
    torch.testing.assert_close((float(loss.detach()), gradients_of(heads, loss)), expected, rtol=1e-9, atol=1e-12)
