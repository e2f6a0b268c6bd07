"""Drafting is what is to be checked: is there any, and is it in the texts that are drawn?"""

from __future__ import annotations

from headstart.measure.bench.server_counters import read_counters
from headstart.measure.check.drafted import DraftMeter
from headstart.measure.openai_reply import Guesses
from headstart.testing.toy_server import ToyServerConfig, serve_toy


def test_guesses_are_told_for_each_kind_of_test(check_toy):
    certificate = check_toy(ToyServerConfig(tells_counters=True), num_sampled=16)
    tests = {finding.test: finding.guesses for finding in certificate.findings}
    assert certificate.verdict == "exact"
    assert tests["greedy"].drafted > tests["greedy"].accepted > 0
    assert tests["distribution"].drafted > tests["distribution"].accepted > 0
    assert f"In greedy, {tests['greedy'].accepted} of {tests['greedy'].drafted} guesses were kept." in (
        certificate.sentence
    )
    document = certificate.to_json()
    assert {test["test"]: test["guesses"] for test in document["tests"]}["greedy"]["drafted"] == tests["greedy"].drafted


def test_a_server_that_drafts_nothing_proves_nothing(check_toy):
    certificate = check_toy(ToyServerConfig(drafts=False, tells_counters=True), num_sampled=8)
    assert certificate.verdict == certificate.to_json()["verdict"] == "unproven"
    assert certificate.undrafted == ("greedy", "distribution")
    assert not certificate.exact
    assert certificate.to_json()["fault"] is None


def test_a_fault_is_a_fault_without_drafts(check_toy):
    certificate = check_toy(ToyServerConfig(drafts=False, tells_counters=True, fault="seed shared"), num_sampled=8)
    assert certificate.verdict == "broken"


def test_a_server_that_does_not_tell_gets_the_benefit_of_the_doubt(check_toy):
    certificate = check_toy(ToyServerConfig(drafts=False), num_sampled=8)
    assert certificate.verdict == "exact"
    assert all(finding.guesses is None for finding in certificate.findings)


class Telling:
    """Stands in for an asker whose answers tell of drafts, as llama.cpp's do."""

    def __init__(self, url: str) -> None:
        self.url, self.guesses = url, None


def test_counters_are_read_before_answers_and_laps_are_differences():
    with serve_toy(ToyServerConfig()) as url:  # which has no counters
        asker = Telling(url)
        meter = DraftMeter(asker)
        assert meter.lap() is None
        asker.guesses = Guesses(10, 4)
        assert meter.lap() == Guesses(10, 4)
        asker.guesses = Guesses(15, 6)
        assert meter.lap() == Guesses(5, 2)
        assert meter.lap() == Guesses(0, 0)


def test_counters_of_a_toy_are_those_of_a_server():
    with serve_toy(ToyServerConfig(tells_counters=True)) as url:
        counters = read_counters(url)
    assert (counters.tokens, counters.drafted, counters.tells_drafts) == (0, 0, True)
