"""Losses against their formulas written out in plain torch, values and gradients alike."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from headstart.errors import ConfigError  # noqa: E402
from headstart.train.loss_mix import LossMix, depth_weights  # noqa: E402
from headstart.train.losses import TrunkLogits, draft_losses, evaluate_rows  # noqa: E402
from headstart.train.targets import IGNORE_INDEX, future_targets  # noqa: E402

ROWS, DRAFT_TOKENS, ALL_TOKENS = 7, 11, 17
MIXES = ("ce", "kl", "tv", "nla", "lk", "0.1*ce+0.9*tv", "0.5*kl+2*nla+ce", "lk+0.25*ce+kl+tv+nla")


def logits_of(seed: int, columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 2 * torch.randn(ROWS, columns, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def labels_of() -> Tensor:
    return torch.tensor([0, 10, IGNORE_INDEX, 3, 3, IGNORE_INDEX, 7])


def formula(mix: LossMix, draft_logits: Tensor, all_trunk_logits: Tensor, labels: Tensor) -> Tensor:
    """The module's formulas as one would write them, over the trunk's whole vocabulary, for autograd."""
    draft = draft_logits.softmax(-1)
    true_trunk = all_trunk_logits.softmax(-1)[:, : draft.shape[1]]
    trunk = true_trunk / true_trunk.sum(-1, keepdim=True)
    acceptance = torch.minimum(draft, true_trunk).sum(-1)
    ce = torch.nn.functional.cross_entropy(draft_logits, labels, reduction="none", ignore_index=IGNORE_INDEX)
    kl = (trunk * (trunk.log() - draft.log())).sum(-1)
    share = torch.exp(-3 * acceptance.detach())
    return (
        mix.ce * ce
        + mix.kl * kl
        + mix.tv * (1 - acceptance)
        - mix.nla * acceptance.log()
        + mix.lk * (share * kl + (1 - share) * (1 - acceptance))
    )


@pytest.mark.parametrize("text", MIXES)
@pytest.mark.parametrize("reduced", [False, True], ids=["whole vocabulary", "reduced vocabulary"])
def test_values_and_gradients_are_those_of_the_formulas(text: str, reduced: bool) -> None:
    mix = LossMix.parse(text)
    all_trunk_logits = logits_of(1, ALL_TOKENS if reduced else DRAFT_TOKENS)
    trunk = TrunkLogits(all_trunk_logits[:, :DRAFT_TOKENS], all_trunk_logits.logsumexp(-1) if reduced else None)
    results = []
    for compute in (
        lambda logits: draft_losses(mix, logits, trunk=trunk, labels=labels_of()),
        lambda logits: formula(mix, logits, all_trunk_logits, labels_of()),
    ):
        logits = logits_of(2, DRAFT_TOKENS).requires_grad_()
        losses = compute(logits)
        # unequal weights, so that a gradient of the mere sum would not do
        (losses * torch.linspace(0.5, 2.0, ROWS, dtype=losses.dtype)).sum().backward()
        results.append((losses.detach(), logits.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-12)


def test_a_draft_equal_to_the_trunk_has_nothing_to_learn() -> None:
    logits = logits_of(3, DRAFT_TOKENS)
    rows = evaluate_rows(LossMix.parse("kl+tv+nla+lk"), logits, trunk=TrunkLogits(logits), row_weights=torch.ones(ROWS))
    assert rows.acceptance is not None
    torch.testing.assert_close(rows.acceptance, torch.ones_like(rows.acceptance))
    torch.testing.assert_close(rows.losses, torch.zeros_like(rows.losses))
    torch.testing.assert_close(rows.gradient, torch.zeros_like(logits))


def test_mass_outside_the_draft_vocabulary_is_rejected() -> None:
    """The draft is perfect inside; half of the trunk lies outside, so half of the draft is accepted."""
    logits = logits_of(4, DRAFT_TOKENS)
    trunk = TrunkLogits(logits, logits.logsumexp(-1) + math.log(2))
    rows = evaluate_rows(LossMix.parse("tv"), logits, trunk=trunk)
    torch.testing.assert_close(rows.acceptance, torch.full((ROWS,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(rows.losses, torch.full((ROWS,), 0.5, dtype=torch.float64))
    # KL is taken inside, where the draft is right
    assert float(evaluate_rows(LossMix.parse("kl"), logits, trunk=trunk).losses.abs().max()) < 1e-12


def test_what_is_correct_is_the_likeliest_token_of_a_labelled_row() -> None:
    logits = torch.tensor([[0.0, 2.0], [3.0, 1.0], [0.0, 1.0]])
    labels = torch.tensor([1, 1, IGNORE_INDEX])
    rows = evaluate_rows(LossMix.parse("ce"), logits, labels=labels)
    assert rows.correct is not None
    assert rows.correct.tolist() == [True, False, False]
    assert float(rows.losses[2]) == 0
    assert rows.acceptance is None


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits, trunk = logits_of(5, DRAFT_TOKENS).bfloat16(), logits_of(6, DRAFT_TOKENS).bfloat16()
    coarse = evaluate_rows(LossMix.parse("kl+tv"), logits, trunk=TrunkLogits(trunk))
    fine = evaluate_rows(LossMix.parse("kl+tv"), logits.double(), trunk=TrunkLogits(trunk.double()))
    assert coarse.losses.dtype == torch.float32
    torch.testing.assert_close(coarse.losses.double(), fine.losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gap", [50.0, 500.0])
def test_logits_far_apart_stay_finite(gap: float) -> None:
    """At a random start draft and trunk may share nothing that float32 can hold."""
    draft = torch.tensor([[gap, 0.0, -gap]])
    rows = evaluate_rows(
        LossMix.parse("kl+nla+lk+ce"), draft, trunk=TrunkLogits(-draft), labels=torch.tensor([2]),
        row_weights=torch.ones(1),
    )  # fmt: skip
    assert rows.gradient is not None
    assert bool(rows.losses.isfinite().all())
    assert bool(rows.gradient.isfinite().all())


def test_no_gradient_reaches_the_trunk() -> None:
    trunk = logits_of(7, DRAFT_TOKENS).requires_grad_()
    draft = logits_of(8, DRAFT_TOKENS).requires_grad_()
    draft_losses(LossMix.parse("lk"), draft, trunk=TrunkLogits(trunk)).sum().backward()
    assert draft.grad is not None
    assert trunk.grad is None


def test_the_cat_sat_on_the_mat() -> None:
    """The worked example of docs/explanation/training-losses.md: four heads at the position after 'the cat'."""
    words = ["the", "cat", "sat", "on", "the", "mat"]
    vocabulary = sorted(set(words))
    tokens = torch.tensor([vocabulary.index(word) for word in words])
    one_document, supervised = torch.zeros_like(tokens), torch.ones_like(tokens, dtype=torch.bool)
    after_cat = 1
    terms = []
    for offset, probability in enumerate((0.50, 0.30, 0.20, 0.10), start=1):
        targets, _ = future_targets(tokens, one_document, supervised, offset)
        label = targets[after_cat : after_cat + 1]
        draft = torch.full((1, len(vocabulary)), (1 - probability) / (len(vocabulary) - 1), dtype=torch.float64)
        draft[0, label] = probability
        terms.append(float(draft_losses(LossMix.parse("ce"), draft.log(), labels=label)))
    weights = depth_weights("constant", 4)
    loss = sum(weight * term for weight, term in zip(weights, terms, strict=True))
    assert [round(term, 3) for term in terms] == [0.693, 1.204, 1.609, 2.303]
    assert round(loss, 3) == 5.809
    assert round(loss - terms[0], 3) == 5.116


@pytest.mark.parametrize(
    ("mix", "given", "message"),
    [
        ("ce", {}, "needs labels"),
        ("lk", {}, "compares with the trunk"),
        ("kl", {"trunk": TrunkLogits(torch.zeros(2, 4))}, r"draft \[2, 3\] and of the trunk \[2, 4\]"),
        ("ce", {"labels": torch.zeros(3, dtype=torch.int64)}, "for 2 rows"),
    ],
)
def test_what_is_missing_is_named(mix: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draft_losses(LossMix.parse(mix), torch.zeros(2, 3), **given)
