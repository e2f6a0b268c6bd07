"""A server that is exact by distribution, whose logits are rounded otherwise, is never called broken."""

from __future__ import annotations

import itertools

import pytest

from headstart.testing.toy_server import ToyServerConfig

# errors of logits: none, those of f32, those of 16-bit arithmetic
ERRORS = (0.0, 1e-4, 0.01)
TELLING = ({}, {"tells_ids": False}, {"tells_logprobs": False})
SERVERS = [
    ToyServerConfig(seed=seed, logit_error=error, **telling)
    for seed, (error, telling) in zip(range(20), itertools.cycle(itertools.product(ERRORS, TELLING)), strict=False)
]


@pytest.mark.parametrize("served", SERVERS, ids=lambda served: f"seed {served.seed}")
def test_no_fault_is_found(check_toy, served):
    certificate = check_toy(served, num_sampled=30, max_tokens=24)
    assert certificate.exact, certificate.sentence
    tests = {finding.test: finding for finding in certificate.findings}
    assert tests["greedy"].figures["num_places"] > 40
    assert tests["distribution"].figures["num_texts"] == 30
    assert tests["stop strings"].figures["num_stopped"] > 5


def test_tokens_that_rounding_changes_are_ties(check_toy):
    certificate = check_toy(ToyServerConfig(logit_error=0.015), max_tokens=60)
    greedy = next(finding for finding in certificate.findings if finding.test == "greedy")
    assert certificate.exact, certificate.sentence
    assert greedy.figures["num_ties"] > 0
    assert all(departure["margin"] < 0.1 for departure in greedy.figures["departures"])


def test_an_honest_server_passes_beside_another(check_toy):
    certificate = check_toy(ToyServerConfig(seed=3, logit_error=0.01), by_plain=ToyServerConfig(seed=4))
    assert certificate.exact, certificate.sentence
    assert all(finding.outcome == "passed" for finding in certificate.findings)
