"""Servers with one fault each: it is named, and nothing else is."""

from __future__ import annotations

import pytest

from headstart.errors import UnsupportedError
from headstart.testing.toy_server import ToyServerConfig

FAULTS = (
    "argmax at temperature 1",
    "near-miss accepted",
    "token lost after a rejection",
    "stale cache row",
    "draft distribution off",
    "stop string missed",
    "seed shared",
)


def named(certificate) -> list[str]:
    return [fault.kind for fault in certificate.faults]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("logit_error", [0.0, 0.01])
def test_the_model_names_the_fault(check_toy, fault, logit_error):
    certificate = check_toy(ToyServerConfig(fault=fault, logit_error=logit_error, seed=1))
    assert named(certificate) == [fault], certificate.sentence
    assert certificate.to_json()["verdict"] == "broken"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_plain_server_names_the_fault(check_toy, fault):
    served, plain = ToyServerConfig(fault=fault, seed=2), ToyServerConfig(seed=3)
    # without the model's probabilities more has to be drawn
    num_sampled = {"draft distribution off": 250, "argmax at temperature 1": 80}.get(fault, 10)
    certificate = check_toy(served, by_plain=plain, num_sampled=num_sampled)
    assert named(certificate) == [fault], certificate.sentence


# a near-miss cannot be told from rounding that nobody tells the size of
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "near-miss accepted"])
def test_token_ids_alone_are_enough_for_the_model(check_toy, fault):
    certificate = check_toy(ToyServerConfig(fault=fault, tells_logprobs=False, seed=1))
    assert named(certificate) == [fault], certificate.sentence


def test_seeds_that_are_shared_only_among_requests_at_the_same_time(check_toy):
    certificate = check_toy(ToyServerConfig(fault="seed shared at once"))
    assert named(certificate) == ["seed shared"]
    repeats = next(finding for finding in certificate.findings if finding.test == "seeds").figures["num_repeats"]
    assert repeats["at once"] > 0
    assert repeats["alone"] == repeats["without a seed"] == 0


def test_a_wrong_count(check_toy):
    assert named(check_toy(ToyServerConfig(fault="wrong token count"))) == ["wrong token count"]


def test_another_model_is_no_rounding(check_toy):
    certificate = check_toy(ToyServerConfig(logit_error=0.5))
    assert named(certificate) == ["other logits"]


def test_the_test_of_the_distribution_stops_when_it_is_clear(check_toy):
    certificate = check_toy(ToyServerConfig(fault="draft distribution off"), num_sampled=400)
    figures = next(finding for finding in certificate.findings if finding.test == "distribution").figures
    assert figures["num_texts"] < 200
    assert figures["log_evidence"] >= figures["log_evidence_needed"]


def test_where_tokens_part_stands_in_the_document(check_toy):
    document = check_toy(ToyServerConfig(fault="near-miss accepted")).to_json()
    greedy = next(test for test in document["tests"] if test["test"] == "greedy")
    first = greedy["figures"]["departures"][0]
    assert first["kind"] == "near-miss"
    assert first["margin"] == pytest.approx(first["server_margin"], abs=1e-6)
    assert 0 < first["margin"] <= 1.0
    assert first["server_token"] != first["model_token"]


def test_a_server_that_tells_no_tokens_is_not_called_exact(check_toy):
    silent = ToyServerConfig(tells_ids=False, tells_logprobs=False)
    with pytest.raises(UnsupportedError, match="neither"):
        check_toy(silent)
    with pytest.raises(UnsupportedError, match="log-probabilities"):
        check_toy(ToyServerConfig(), by_plain=ToyServerConfig(tells_logprobs=False))
