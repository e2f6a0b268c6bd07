"""Passes by a data sheet."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.errors import ConfigError
from headstart.measure.plan import Experts, Roofline

# a byte a weight, 10 GB/s, 100 GFLOP/s: reading takes 0.1 s, a row computes 0.02 s
SMALL = Roofline(parameters=1e9, bits=8, bandwidth_bytes_per_s=1e10, flops_per_s=1e11)


def test_few_rows_wait_for_memory_and_many_for_arithmetic() -> None:
    assert [SMALL.pass_s(rows, 1) for rows in (1, 5, 6, 10)] == pytest.approx([0.1, 0.1, 0.12, 0.2])
    assert SMALL.balanced_rows == pytest.approx(5)


def test_each_sequence_brings_its_own_cache() -> None:
    with_cache = Roofline(parameters=1e9, bits=8, bandwidth_bytes_per_s=1e10, flops_per_s=1e11, cache_bytes=2e8)
    assert [with_cache.pass_s(4, sequences) for sequences in (1, 4)] == pytest.approx([0.12, 0.18])


def test_the_curve_is_exact_where_it_is_used() -> None:
    curve = SMALL.curve(num_sequences=3, nodes=2)
    assert curve.points == pytest.approx({3: 0.1, 6: 0.12, 9: 0.18})


def test_rows_read_as_many_experts_as_they_are_sent_to() -> None:
    experts, generator = Experts(num_experts=16, used=3, share=0.6), np.random.default_rng(3)
    for rows in (1, 2, 5):
        touched = [
            len({int(expert) for _ in range(rows) for expert in generator.permutation(16)[:3]}) for _ in range(4000)
        ]
        assert experts.growth(rows) == pytest.approx(0.4 + 0.6 * np.mean(touched) / 3, rel=0.01)


def test_experts_make_rows_dear_until_all_are_read() -> None:
    sparse = Roofline(
        parameters=1e9,
        bits=8,
        bandwidth_bytes_per_s=1e10,
        flops_per_s=1e14,
        experts=Experts(num_experts=64, used=4, share=1.0),
    )
    first, later = sparse.pass_s(2, 1) / sparse.pass_s(1, 1), sparse.pass_s(402, 1) / sparse.pass_s(401, 1)
    assert first > 1.9
    assert later == pytest.approx(1.0)


@pytest.mark.parametrize(
    "wrong", [{"parameters": 0.0}, {"bits": -4.0}, {"flops_per_s": float("inf")}, {"cache_bytes": -1.0}]
)
def test_what_is_no_machine_is_refused(wrong: dict[str, float]) -> None:
    sizes = {"parameters": 1e9, "bits": 8.0, "bandwidth_bytes_per_s": 1e10, "flops_per_s": 1e11} | wrong
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Roofline(**sizes)


@pytest.mark.parametrize(("num_experts", "used", "share"), [(8, 9, 0.5), (8, 0, 0.5), (8, 2, 0.0), (8, 2, 1.1)])
def test_what_is_no_mixture_is_refused(num_experts: int, used: int, share: float) -> None:
    with pytest.raises(ConfigError, match="xperts"):
        Experts(num_experts=num_experts, used=used, share=share)
