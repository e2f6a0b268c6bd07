from __future__ import annotations

import json
import math

import pytest

from headstart.errors import HeadstartError
from headstart.train.pretrain.guard import SpikeGuard


def seasoned(factor: float = 3.0, max_skipped: int = 2) -> SpikeGuard:
    guard = SpikeGuard(factor, max_skipped)
    for step in range(20):
        assert guard.passes(step, 2.0 + 0.01 * step, 1.0)
    return guard


@pytest.mark.parametrize(
    ("loss", "norm", "passes"),
    [
        (2.0, 1.0, True),
        (math.nan, 1.0, False),
        (2.0, math.inf, False),
        (7.0, 1.0, False),
        (2.0, 3.5, False),
        (5.9, 2.9, True),
    ],
)
def test_what_reaches_the_weights(loss: float, norm: float, passes: bool) -> None:
    guard = seasoned()
    assert guard.passes(21, loss, norm) is passes
    assert guard.num_skipped == (not passes)


def test_a_beginning_may_be_wild_but_not_no_number() -> None:
    guard = SpikeGuard(3.0, 2)
    assert guard.passes(1, 1.0, 1.0)
    assert guard.passes(2, 100.0, 100.0)
    assert not guard.passes(3, math.nan, 1.0)


def test_too_many_in_a_row_end_the_run_with_their_reason() -> None:
    guard = seasoned()
    for _ in range(2):
        assert not guard.passes(30, 99.0, 1.0)
    assert guard.passes(31, 2.0, 1.0)
    for _ in range(2):
        assert not guard.passes(32, 99.0, 1.0)
    with pytest.raises(HeadstartError, match=r"Step 33: the loss is 99, above 3 times its recent median 2.09"):
        guard.passes(33, 99.0, 1.0)
    assert guard.num_skipped == 5
    guard = seasoned()
    for _ in range(2):
        assert not guard.passes(30, 2.0, math.inf)
    with pytest.raises(HeadstartError, match="the gradient's norm inf"):
        guard.passes(31, 2.0, math.inf)


def test_a_gradient_that_stays_large_is_the_weights_and_taken() -> None:
    """Nothing is learnt of refused steps, so it would be as large for ever."""
    guard = seasoned()
    for _ in range(2):
        assert not guard.passes(30, 2.0, 99.0)
    assert guard.passes(31, 2.0, 99.0)
    for step in range(32, 50):
        assert guard.passes(step, 2.0, 90.0)
    assert not guard.passes(50, 2.0, 999.0)
    assert guard.num_skipped == 3


def test_no_factor_is_no_limit() -> None:
    assert seasoned(0.0).passes(30, 1e9, 1e9)


def test_a_skipped_step_does_not_become_usual() -> None:
    guard = seasoned(max_skipped=100)
    for _ in range(70):
        assert not guard.passes(30, 2.0, 50.0)


def test_it_goes_on_after_a_restart() -> None:
    guard, other = seasoned(), SpikeGuard(3.0, 2)
    guard.passes(30, 2.0, 99.0)
    other.restore(json.loads(json.dumps(guard.state())))
    assert other.state() == guard.state()
    assert not other.passes(31, 99.0, 99.0)
    with pytest.raises(HeadstartError):
        other.passes(32, 99.0, 99.0)


def test_a_loss_that_means_something_else_is_not_compared_with_what_was() -> None:
    """A head that joins brings a loss of its own, which is no spike; what it then is, is looked at as before."""
    guard = seasoned()
    assert not guard.passes(21, 20.0, 1.0)
    assert guard.passes(22, 20.0, 9.0, weights=(1.0,))
    for step in range(23, 43):
        assert guard.passes(step, 20.0, 9.0, weights=(1.0,))
    other = SpikeGuard(3.0, 2)
    other.restore(json.loads(json.dumps(guard.state())))
    for each in (guard, other):
        assert not each.passes(43, 70.0, 9.0, weights=(1.0,))
