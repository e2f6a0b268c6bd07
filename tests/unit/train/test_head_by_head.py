"""Heads one at a time against the plain sum of their losses: same gradients, less held at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from headstart.errors import ConfigError  # noqa: E402
from headstart.train.chunked import chunked_loss  # noqa: E402
from headstart.train.head_by_head import head_by_head  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402

WIDTH, TOKENS, ROWS = 5, 7, 6


class Model(nn.Module):
    """A trunk, a few heads and one unembedding, which all heads share."""

    def __init__(self, num_heads: int = 3) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.trunk = nn.Linear(WIDTH, WIDTH)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(num_heads))
        self.unembedding = nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.inputs = torch.randn(ROWS, WIDTH, dtype=torch.float64)
        self.labels = torch.randint(TOKENS, (num_heads, ROWS))
        self.double()

    def head_loss(self, number: int, states: Tensor) -> Tensor:
        hidden = torch.tanh(self.heads[number](states))
        return (number + 1) * nn.functional.cross_entropy(hidden @ self.unembedding.t(), self.labels[number])

    def chunked_head_loss(self, number: int, states: Tensor) -> Tensor:
        weights = torch.full((ROWS,), (number + 1) / ROWS, dtype=torch.float64)
        hidden = torch.tanh(self.heads[number](states))
        mix = LossMix.parse("ce")
        return chunked_loss(
            hidden, self.unembedding, mix, row_weights=weights, labels=self.labels[number], chunk_rows=4
        ).loss

    def losses(self, loss: Callable[[int, Tensor], Tensor]) -> list[Callable[[Tensor], Tensor]]:
        return [lambda states, number=number: loss(number, states) for number in range(len(self.heads))]

    def head_parameters(self) -> list[nn.Parameter]:
        return [*self.heads.parameters(), self.unembedding]

    def states(self) -> Tensor:
        return torch.tanh(self.trunk(self.inputs))

    def naive(self) -> Tensor:
        states = self.states()
        return sum(self.head_loss(number, states) for number in range(len(self.heads)))

    def gradients(self) -> list[Tensor | None]:
        taken = [parameter.grad for parameter in self.parameters()]
        self.zero_grad(set_to_none=True)
        return taken


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("chunked", [False, True])
def test_gradients_are_those_of_the_sum(num_heads: int, chunked: bool) -> None:
    model = Model(num_heads)
    naive = model.naive()
    (naive / 3).backward()  # a factor on the loss, as of micro-batches, must reach all gradients
    expected = model.gradients()
    losses = model.losses(model.chunked_head_loss if chunked else model.head_loss)
    total = head_by_head(model.states(), losses, model.head_parameters())
    assert all(parameter.grad is None for parameter in model.parameters()), "gradients come with the backward pass"
    (total / 3).backward()
    torch.testing.assert_close(total.detach(), naive.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model.gradients(), expected, rtol=1e-10, atol=1e-12)


def test_products_in_bfloat16_give_the_gradients_of_the_sum() -> None:
    """Autocast keeps its copies of weights from head to head; turning one back must not spoil them."""
    model = Model(3).float()
    model.inputs = model.inputs.float()
    with torch.autocast("cpu", torch.bfloat16):
        model.naive().backward()
    expected = model.gradients()
    with torch.autocast("cpu", torch.bfloat16):
        head_by_head(model.states(), model.losses(model.head_loss), model.head_parameters()).backward()
    torch.testing.assert_close(model.gradients(), expected, rtol=0.02, atol=0.02)


def test_each_head_is_turned_back_before_the_next_and_the_furthest_is_first() -> None:
    model = Model(3)
    events: list[str] = []

    def watched(number: int, states: Tensor) -> Tensor:
        events.append(f"forward {number}")
        loss = model.head_loss(number, states)
        loss.register_hook(lambda _: events.append(f"backward {number}"))
        return loss

    head_by_head(model.states(), model.losses(watched), model.head_parameters())
    assert events == [f"{way} {number}" for number in (2, 1, 0) for way in ("forward", "backward")]


def test_hooks_of_parameters_fire_once() -> None:
    """What wraps a model to add gradients over processes counts on it."""
    model = Model(4)
    fired = []
    model.unembedding.register_post_accumulate_grad_hook(fired.append)
    head_by_head(model.states(), model.losses(model.head_loss), model.head_parameters()).backward()
    assert len(fired) == 1


def test_a_frozen_trunk_gets_nothing_and_heads_learn() -> None:
    model = Model()
    model.naive().backward()
    expected = [parameter.grad for parameter in model.head_parameters()]
    model.gradients()
    model.trunk.requires_grad_(False)
    head_by_head(model.states(), model.losses(model.head_loss), model.head_parameters()).backward()
    assert model.trunk.weight.grad is None
    torch.testing.assert_close([parameter.grad for parameter in model.head_parameters()], expected)


def test_gradients_that_autograd_lets_share_memory_stay_apart() -> None:
    """For a sum, autograd gives both summands one tensor; adding to it in place would add twice."""
    first, second = (nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
    states = torch.zeros(3, dtype=torch.float64)
    head = lambda states: (states + first + second).sum()  # noqa: E731
    (2 * head_by_head(states, [head, head], [first, second])).backward()
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.tolist() == second.grad.tolist() == [4.0] * 3


def test_a_head_alone_may_leave_others_parameters_unused() -> None:
    model = Model(3)
    head_by_head(model.states(), model.losses(model.head_loss)[:1], model.head_parameters()).backward()
    assert model.heads[0].weight.grad is not None
    assert model.heads[2].weight.grad is None


def test_without_gradients_it_is_the_sum() -> None:
    model = Model()
    with torch.no_grad():
        total = head_by_head(model.states(), model.losses(model.head_loss), model.head_parameters())
        torch.testing.assert_close(total, model.naive())
    assert not total.requires_grad


def test_a_parameter_that_is_not_listed_is_refused() -> None:
    model = Model()
    with pytest.raises(ConfigError, match=r"shape \[7, 5\] that is not among the parameters"):
        head_by_head(model.states(), model.losses(model.head_loss), list(model.heads.parameters()))


def test_no_heads_and_parameters_listed_twice_are_refused() -> None:
    model = Model()
    with pytest.raises(ConfigError, match="no heads"):
        head_by_head(model.states(), [], [])
    with pytest.raises(ConfigError, match="listed twice"):
        head_by_head(model.states(), model.losses(model.head_loss), model.head_parameters() * 2)


def test_a_second_backward_is_refused() -> None:
    model = Model()
    total = head_by_head(model.states(), model.losses(model.head_loss), model.head_parameters())
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="given out already"):
        total.backward()
