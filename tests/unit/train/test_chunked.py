"""The chunked loss against one unembedding product and autograd; and that no tensor of the text's size is made."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from headstart.errors import ConfigError  # noqa: E402
from headstart.train.chunked import ChunkedLoss, TrunkStates, chunked_loss, log_normaliser  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402
from headstart.train.losses import TrunkLogits, draft_losses, evaluate_rows  # noqa: E402
from headstart.train.targets import IGNORE_INDEX  # noqa: E402

ROWS, WIDTH, TRUNK_WIDTH, DRAFT_TOKENS, ALL_TOKENS = 13, 6, 5, 9, 15
MIX = LossMix.parse("0.3*ce+kl+0.5*lk+0.2*nla")


class Case:
    """A draft and a reduced view of a trunk; rows 2 and 7 have weight 0, row 4 has no label."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        generator = torch.Generator().manual_seed(11)
        self.hidden = normal(ROWS, WIDTH).requires_grad_()
        self.unembedding = normal(DRAFT_TOKENS, WIDTH).requires_grad_()
        trunk_states, whole = normal(ROWS, TRUNK_WIDTH), normal(ALL_TOKENS, TRUNK_WIDTH)
        self.trunk = TrunkStates(trunk_states, whole[:DRAFT_TOKENS], log_normaliser(trunk_states, whole)[0])
        self.labels = torch.randint(DRAFT_TOKENS, (ROWS,), generator=generator)
        self.labels[4] = IGNORE_INDEX
        self.row_weights = torch.linspace(0.5, 1.5, ROWS, dtype=dtype)
        self.row_weights[[2, 7]] = 0

    def chunked(self, chunk_rows: int = 4, mix: LossMix = MIX, trunk: Any = None, **changed: Any) -> ChunkedLoss:
        given = {"row_weights": self.row_weights, "labels": self.labels, "chunk_rows": chunk_rows, **changed}
        return chunked_loss(self.hidden, self.unembedding, mix, trunk=trunk or self.trunk, **given)

    def trunk_logits(self) -> TrunkLogits:
        return self.trunk.rows(torch.arange(ROWS))

    def at_once(self) -> Tensor:
        logits = self.hidden @ self.unembedding.t()
        losses = draft_losses(MIX, logits, trunk=self.trunk_logits(), labels=self.labels)
        return (losses * self.row_weights).sum()

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        taken = self.hidden.grad, self.unembedding.grad
        self.hidden.grad = self.unembedding.grad = None
        return taken


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
@pytest.mark.parametrize("chunk_rows", [1, 4, 11, 100])
def test_values_and_gradients_are_those_of_autograd(dtype: torch.dtype, tolerance: float, chunk_rows: int) -> None:
    case = Case(dtype)
    at_once = case.at_once()
    (at_once * 3).backward()
    expected = at_once.detach(), *case.gradients()
    for trunk in (case.trunk, case.trunk_logits()):
        loss = case.chunked(chunk_rows, trunk=trunk).loss
        (loss * 3).backward()
        torch.testing.assert_close((loss.detach(), *case.gradients()), expected, rtol=tolerance, atol=tolerance)


def test_statistics_are_those_of_the_rows() -> None:
    case = Case()
    chunked = case.chunked()
    rows = evaluate_rows(
        MIX, (case.hidden @ case.unembedding.t()).detach(), trunk=case.trunk_logits(), labels=case.labels
    )
    counted = case.row_weights != 0
    assert chunked.correct is not None
    assert rows.correct is not None
    assert chunked.correct.tolist() == (rows.correct & counted).tolist()
    torch.testing.assert_close(chunked.acceptance, rows.acceptance * counted)
    torch.testing.assert_close(chunked.row_losses, rows.losses * counted)


def test_a_frozen_unembedding_gets_no_gradient_and_changes_no_other() -> None:
    case = Case()
    case.chunked().loss.backward()
    expected, _ = case.gradients()
    case.unembedding.requires_grad_(False)
    with Products() as products:
        case.chunked().loss.backward()
    hidden_gradient, weight_gradient = case.gradients()
    assert weight_gradient is None
    assert torch.equal(hidden_gradient, expected)
    assert [DRAFT_TOKENS, WIDTH] not in products.shapes


def test_nothing_of_the_size_of_text_and_vocabulary_is_made() -> None:
    case = Case()
    with Products() as products:
        case.chunked(chunk_rows=4).loss.backward()
    assert [4, DRAFT_TOKENS] in products.shapes  # the logits of a chunk: the record works
    assert not any(shape == [rows, DRAFT_TOKENS] for shape in products.shapes for rows in range(5, ROWS + 1))


def test_rows_of_weight_0_are_not_looked_at() -> None:
    case = Case()
    with torch.no_grad():
        case.hidden[2] = torch.nan
    chunked = case.chunked()
    chunked.loss.backward()
    hidden_gradient, weight_gradient = case.gradients()
    assert bool(chunked.loss.isfinite())
    assert hidden_gradient is not None
    assert hidden_gradient[2].tolist() == [0.0] * WIDTH
    assert weight_gradient is not None
    assert bool(weight_gradient.isfinite().all())


def test_no_row_at_all_is_a_loss_of_0() -> None:
    """A process or micro-batch without targets adds nothing, and divides nothing by 0."""
    case = Case()
    chunked = case.chunked(row_weights=torch.zeros(ROWS, dtype=torch.float64))
    chunked.loss.backward()
    assert float(chunked.loss.detach()) == 0
    for gradient in case.gradients():
        assert gradient is not None
        assert float(gradient.abs().max()) == 0


def test_micro_batches_add_up() -> None:
    case = Case()
    case.chunked().loss.backward()
    expected = case.gradients()
    for part in (slice(0, 5), slice(5, ROWS)):
        trunk = TrunkStates(case.trunk.states[part], case.trunk.unembedding, case.trunk.log_normaliser[part])
        chunked_loss(
            case.hidden[part], case.unembedding, MIX,
            row_weights=case.row_weights[part], trunk=trunk, labels=case.labels[part], chunk_rows=4,
        ).loss.backward()  # fmt: skip
    torch.testing.assert_close(case.gradients(), expected, rtol=1e-12, atol=1e-12)


def test_without_gradients_none_are_computed() -> None:
    case = Case()
    with torch.no_grad(), Products() as products:
        chunked = case.chunked()
    assert not chunked.loss.requires_grad
    assert [4, WIDTH] not in products.shapes
    torch.testing.assert_close(chunked.loss, case.chunked().loss.detach())


def test_a_second_backward_is_refused() -> None:
    loss = Case().chunked().loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="given out already"):
        loss.backward()


def test_products_in_bfloat16_give_float32_losses_and_gradients_of_the_inputs_type() -> None:
    exact, coarse = Case(torch.float64), Case(torch.float32)
    exact.chunked().loss.backward()
    with torch.autocast("cpu", torch.bfloat16), Products() as products:
        loss = coarse.chunked().loss
        loss.backward()
    assert torch.bfloat16 in products.dtypes
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(exact.chunked().loss.detach()), rel=0.02)
    for gradient, expected in zip(coarse.gradients(), exact.gradients(), strict=True):
        assert gradient is not None
        assert gradient.dtype == torch.float32
        assert float((gradient - expected).norm() / expected.norm()) < 0.02


def test_a_bfloat16_unembedding_sets_the_type_of_products_and_its_gradient() -> None:
    case = Case(torch.float32)
    case.unembedding = case.unembedding.detach().bfloat16().requires_grad_()
    with Products() as products:
        case.chunked(mix=LossMix.parse("kl")).loss.backward()
    hidden_gradient, weight_gradient = case.gradients()
    assert torch.bfloat16 in products.dtypes
    assert hidden_gradient is not None
    assert hidden_gradient.dtype == torch.float32
    assert weight_gradient is not None
    assert weight_gradient.dtype == torch.bfloat16


def test_the_log_normaliser_is_that_of_the_whole_vocabulary() -> None:
    case = Case()
    logits = case.hidden.detach() @ case.unembedding.detach().t()
    normaliser, likeliest = log_normaliser(case.hidden, case.unembedding, chunk_rows=5)
    torch.testing.assert_close(normaliser, logits.logsumexp(-1))
    assert likeliest.tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row_weights": torch.ones(2)}, "for 13 rows"),
        ({"chunk_rows": 0}, "chunk_rows = 0"),
        ({"labels": None}, "needs labels"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Case().chunked(**changed)


def test_batches_are_to_be_flattened() -> None:
    with pytest.raises(ConfigError, match="Flatten"):
        chunked_loss(torch.zeros(2, 3, 4), torch.zeros(5, 4), LossMix.parse("ce"), row_weights=torch.ones(2))


class Products(TorchDispatchMode):
    """Records shapes and types of what matrix products return."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[list[int]] = []
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.mm.default:
            self.shapes.append(list(result.shape))
            self.dtypes.add(result.dtype)
        return result
