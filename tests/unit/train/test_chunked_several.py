"""Several guesses at the same rows in one go, against one call for each; and the trunk's likeliest token."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from headstart.train.chunked import ChunkedLoss, TrunkStates, chunked_loss, chunked_losses, log_normaliser  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402

ROWS, WIDTH, TRUNK_WIDTH, DRAFT_TOKENS, ALL_TOKENS = 11, 6, 5, 9, 15
MIX = LossMix.parse("0.3*ce+kl+0.5*lk+0.2*nla")


class Case:
    """Three guesses: one at all rows, one at some, one at none of the second chunk; row 3 is nobody's."""

    def __init__(self, *, trained: bool = True) -> None:
        random = torch.Generator().manual_seed(2)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        self.hiddens = [normal(ROWS, WIDTH).requires_grad_() for _ in range(3)]
        self.unembedding = normal(DRAFT_TOKENS, WIDTH).requires_grad_(trained)
        states, whole = normal(ROWS, TRUNK_WIDTH), normal(ALL_TOKENS, TRUNK_WIDTH)
        self.trunk = TrunkStates(states, whole[:DRAFT_TOKENS], log_normaliser(states, whole)[0])
        self.labels = torch.randint(DRAFT_TOKENS, (ROWS,), generator=random)
        weights = torch.rand(3, ROWS, generator=random, dtype=torch.float64)
        weights[1, ::2] = 0
        weights[2, 4:8] = 0
        weights[:, 3] = 0
        self.row_weights = list(weights)

    def together(self) -> list[ChunkedLoss]:
        return chunked_losses(
            self.hiddens, self.unembedding, MIX, row_weights=self.row_weights, trunk=self.trunk, labels=self.labels,
            chunk_rows=4,
        )  # fmt: skip

    def one_by_one(self) -> list[ChunkedLoss]:
        return [
            chunked_loss(
                hidden, self.unembedding, MIX, row_weights=weights, trunk=self.trunk, labels=self.labels, chunk_rows=4
            )
            for hidden, weights in zip(self.hiddens, self.row_weights, strict=True)
        ]

    def gradients(self, losses: list[ChunkedLoss]) -> list[Tensor | None]:
        torch.stack([each.loss for each in losses]).sum().mul(3).backward()
        tensors = [*self.hiddens, self.unembedding]
        found = [tensor.grad for tensor in tensors]
        for tensor in tensors:
            tensor.grad = None
        return found


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "frozen"])
def test_values_figures_and_gradients_are_those_of_single_calls(trained: bool) -> None:
    case = Case(trained=trained)
    together, alone = case.together(), case.one_by_one()
    for found, expected in zip(together, alone, strict=True):
        for name in ("loss", "row_losses", "acceptance", "correct"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(case.gradients(together), case.gradients(alone), rtol=1e-12, atol=1e-12)


def test_rows_of_nobody_are_not_looked_at() -> None:
    case = Case()
    expected = case.gradients(case.together())
    with torch.no_grad():
        for hidden in case.hiddens:
            hidden[3] = torch.nan
        case.hiddens[1][::2] = torch.inf  # of weight 0 for this guess alone
    for found, wanted in zip(case.gradients(case.together()), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_guesses_with_a_frozen_unembedding_may_be_weighed_afterwards() -> None:
    case = Case(trained=False)
    expected = case.gradients(case.together())
    losses = case.together()
    (3 * losses[0].loss + 6 * losses[1].loss).backward()
    torch.testing.assert_close(case.hiddens[0].grad, expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(case.hiddens[1].grad, 2 * expected[1], rtol=1e-12, atol=1e-12)
    assert not bool(case.hiddens[2].grad.any())


def test_guesses_with_a_trained_unembedding_may_not() -> None:
    """Its gradient is one sum over all of them, made before anyone can say how they weigh."""
    losses = Case().together()
    with pytest.raises(RuntimeError, match="added up"):
        (losses[0].loss + 2 * losses[1].loss + losses[2].loss).backward()


def test_the_likeliest_token_is_found_among_logits_that_bfloat16_rounds_to_one_value() -> None:
    """26 and 26.05 are one number there; on real text every 25th likeliest token would be another."""
    unembedding = torch.zeros(8, 4)
    unembedding[1] = torch.tensor([26.0, 0, 0, 0])
    unembedding[5] = torch.tensor([26.0, 0.046875, 0, 0])
    unembedding[6] = torch.tensor([26.0, 0.046875, 0, 0])
    states = torch.tensor([[1.0, 1, 0, 0], [1.0, -1, 0, 0], [1.0, 0, 0, 0]])
    assert (states.bfloat16() @ unembedding.bfloat16().T)[0, 1] == (states.bfloat16() @ unembedding.bfloat16().T)[0, 5]
    _, likeliest = log_normaliser(states, unembedding.bfloat16())
    assert likeliest.tolist() == [5, 1, 1]
