"""Both optimisers as one: who moves what, and a memory that comes back."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from headstart.train.optimiser import HeadsOptimiser, schedule  # noqa: E402

SHAPES = [(6, 4), (5,), (3, 8), (2,)]


def parameters(seed: int = 0) -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(*shape, generator=random)) for shape in SHAPES]


def move(optimiser: HeadsOptimiser, moved: list[nn.Parameter], steps: range, share: float = 1.0) -> None:
    for step in steps:
        random = torch.Generator().manual_seed(step)
        for parameter in moved:
            parameter.grad = torch.randn(parameter.shape, generator=random)
        optimiser.step(share)


def values(moved: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in moved]


def test_a_memory_that_was_kept_goes_on_bit_for_bit() -> None:
    whole = parameters()
    move(HeadsOptimiser(whole, 0.01, 0.1), whole, range(6))
    begun = parameters()
    optimiser = HeadsOptimiser(begun, 0.01, 0.1)
    move(optimiser, begun, range(3))
    kept, stood = {name: tensor.clone() for name, tensor in optimiser.tensors().items()}, values(begun)
    move(optimiser, begun, range(3, 5))
    gone_on = [nn.Parameter(value) for value in stood]
    fresh = HeadsOptimiser(gone_on, 0.01, 0.1)
    fresh.restore(kept)
    move(fresh, gone_on, range(3, 6))
    for found, expected in zip(gone_on, whole, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("only", [slice(0, 1), slice(1, 2)], ids=["matrices", "vectors"])
def test_one_kind_of_parameters_alone(only: slice) -> None:
    chosen = parameters()[only]
    before = values(chosen)
    optimiser = HeadsOptimiser(chosen, 0.01, 0.0)
    move(optimiser, chosen, range(1))
    assert not torch.equal(chosen[0], before[0])
    assert optimiser.tensors()


def test_gradients_are_cleared_and_a_share_of_0_moves_nothing() -> None:
    moved = parameters()
    before = values(moved)
    move(HeadsOptimiser(moved, 0.01, 0.1), moved, range(2), share=0.0)
    assert all(torch.equal(found, expected) for found, expected in zip(moved, before, strict=True))
    assert all(parameter.grad is None for parameter in moved)


def test_weight_decay_is_of_matrices_alone() -> None:
    moved = parameters()
    before = values(moved)
    optimiser = HeadsOptimiser(moved, 0.01, 0.5)
    for parameter in moved:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step(1.0)
    for found, expected in zip(moved, before, strict=True):
        torch.testing.assert_close(found.detach(), expected * (1 - 0.01 * 0.5 if expected.ndim == 2 else 1))


def test_steps_of_a_matrix_do_not_depend_on_the_size_of_its_gradient() -> None:
    """Which is why one learning rate does for all of them."""
    steps = []
    for size in (1e-3, 1e3):
        matrix = nn.Parameter(torch.zeros(6, 4))
        optimiser = HeadsOptimiser([matrix], 0.01, 0.0)
        matrix.grad = size * torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
        optimiser.step(1.0)
        steps.append(matrix.detach())
    torch.testing.assert_close(steps[0], steps[1], rtol=0.02, atol=1e-4)


def test_the_schedule_rises_then_falls_to_its_end() -> None:
    shares = [schedule(step, 100, 10) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[:10] == sorted(shares[:10])
    assert shares[9:] == sorted(shares[9:], reverse=True)
    assert shares[-1] == pytest.approx(0.02)
    assert min(shares) > 0
    assert max(shares) <= 1
    assert schedule(0, 1, 0) == 1.0
