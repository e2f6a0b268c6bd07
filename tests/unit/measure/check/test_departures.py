"""One token that is not the other server's: what it looks like depends on what the server itself says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.measure.check.answers import Answer
from headstart.measure.check.departures import compare_by_plain
from headstart.measure.check.evidence import NearMissEvidence
from headstart.measure.check.greedy import judge_greedy
from headstart.measure.check.tolerance import Tolerance

TOLERANCE = Tolerance(
    margin=0.1, deviation=0.02, largest=1.0, step=0.0, own_margin=0.0, basis="measured", num_measured=50
)
LAW = (("a", -0.5), ("b", -1.2), ("c", -3.0))
DISTORTED = (("b", -0.9), ("a", -1.3), ("c", -3.0))


def answer(token: str, said) -> Answer:
    return Answer(
        text=token, tokens=(token,), logprobs=(dict(said)[token],), tops=(tuple(said),), best_logprobs=(said[0][1],),
        finish_reason="length",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (answer("b", LAW), "near-miss"),  # it knows that "a" is likelier
        (answer("b", DISTORTED), "other"),  # it takes "b" for the likeliest
        # its probability is right, by chance, and yet it takes it for the likeliest
        (answer("b", (("b", -1.2), ("a", -1.3))), "other"),
    ],
)
def test_who_writes_a_near_miss_knows_better(written, kind):
    walk = compare_by_plain(answer("a", LAW), written, TOLERANCE, 0, NearMissEvidence(TOLERANCE.scale))
    assert [departure.kind for departure in walk.departures] == [kind]


class ManyTies:
    """A reference by which every answer departs at one place, within the margin but not as near as rounding brings."""

    def walk(self, prompt, answer, tolerance, number, evidence):
        return compare_by_plain(
            Answer(text="a", tokens=("a",), logprobs=(-0.69,), tops=((("a", -0.69), ("b", -0.76)),),
                   best_logprobs=(-0.69,)),
            answer, tolerance, number, evidence,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ((("a", -0.69), ("b", -0.76)), "near-miss accepted"),
        ((("b", -0.70), ("a", -0.75)), "stale cache row"),
    ],
)
def test_many_ties_are_the_fault_of_who_knows_better_or_of_wrong_logits(said, fault):
    answers = [answer("b", said)] * 6
    finding = judge_greedy(ManyTies(), [str(number) for number in range(6)], answers, TOLERANCE, 1e-3)
    assert finding.figures["num_ties"] == 6
    assert [found.kind for found in finding.faults] == [fault]


@pytest.mark.parametrize(("own_margin", "faults"), [(0.0, ["near-miss accepted"]), (None, []), (0.02, [])])
def test_what_goes_against_the_servers_own_word_counts_as_much_as_fresh_answers_heed_it(own_margin, faults):
    # between one and two times what rounding brings: 0.014 nats
    said = (("a", -0.690), ("b", -0.712))
    answers = [answer("b", said)] * 2 + [answer("a", said)] * 30

    class Agrees:
        def walk(self, prompt, answer, tolerance, number, evidence):
            return compare_by_plain(answer, answer, tolerance, number, evidence)

    tolerance = replace(TOLERANCE, own_margin=own_margin)
    finding = judge_greedy(Agrees(), [str(number) for number in range(32)], answers, tolerance, 1e-3)
    assert [found.kind for found in finding.faults] == faults


def longer(lead: float) -> Answer:
    said = (("b", -0.7), ("x", -0.7 - lead))
    return Answer(
        text="ab", tokens=("a", "b"), logprobs=(-0.5, -0.7), tops=(LAW, said), best_logprobs=(-0.5, -0.7),
        finish_reason="length",
    )  # fmt: skip


@pytest.mark.parametrize(("lead", "kind"), [(0.05, "tie"), (0.3, "other")])
def test_an_end_where_the_other_goes_on_is_a_tie_if_that_hardly_knew_how(lead, kind):
    ended = replace(answer("a", LAW), finish_reason="stop")
    for pair in ((ended, longer(lead)), (longer(lead), ended)):
        walk = compare_by_plain(*pair, TOLERANCE, 0, NearMissEvidence(TOLERANCE.scale))
        assert [(departure.position, departure.kind) for departure in walk.departures] == [(1, kind)]
    silent = replace(longer(lead), tops=(), logprobs=(), best_logprobs=())
    walk = compare_by_plain(ended, silent, TOLERANCE, 0, NearMissEvidence(TOLERANCE.scale))
    assert [departure.kind for departure in walk.departures] == ["other"]
