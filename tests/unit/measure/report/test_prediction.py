from __future__ import annotations

from collections.abc import Callable

import pytest

from headstart.measure.bench import CostSample, PassSize, PassTally, Turn
from headstart.measure.report.prediction import PassCosts, Prediction, predict

MakeTurn = Callable[..., Turn]
Predict = Callable[[list[PassTally], list[PassTally], PassCosts], Prediction]


def tally(
    sequences: int, drafted: int, passes: int, tokens: int, seconds: float, beside_trunk_s: float = 0.0
) -> PassTally:
    return PassTally(
        sequences=sequences, drafted=drafted, passes=passes, tokens=tokens, seconds=seconds,
        trunk_s=seconds - beside_trunk_s,
    )  # fmt: skip


def pass_costs(seconds: dict[tuple[int, int], float]) -> PassCosts:
    return PassCosts({PassSize(*size): time_s for size, time_s in seconds.items()})


@pytest.fixture
def predicted(make_turn: MakeTurn) -> Predict:
    def make(plain: list[PassTally], drafted: list[PassTally], costs: PassCosts) -> Prediction:
        found = predict([make_turn("none", 0, 1.0, passes=plain)], [make_turn("heads", 0, 1.0, passes=drafted)], costs)
        assert found is not None
        return found

    return make


def test_one_sequence_is_tau_over_v_plus_c(predicted: Predict) -> None:
    costs = pass_costs({(1, 1): 2.0, (1, 3): 3.0, (1, 5): 4.0})
    # 6 passes with two guesses, 2 with four, 2 without
    drafted = [tally(1, 0, 2, 2, 5.0, 0.5), tally(1, 2, 6, 15, 20.0, 3.5), tally(1, 4, 2, 8, 9.0, 1.0)]
    plain = [tally(1, 0, 25, 25, 60.0, 2.5)]
    found = predicted(plain, drafted, costs)
    # measured plain passes took 2.4 s each, with all that is around them; two guesses add 1 s to that, four 2 s
    # and 0.1 s of those was beside the trunk, as were 5 s of the drafting side
    tau, v, c = 25 / 10, 1 + (6 * 1.0 + 2 * 2.0) / (10 * 2.4), (5.0 - 10 * 0.1) / 2.4 / 10
    assert (found.mean_acceptance_length, found.check_cost, found.draft_cost) == pytest.approx((tau, v, c))
    assert found.predicted == pytest.approx(tau / (v + c))
    assert found.break_even_length == pytest.approx(v + c)
    assert found.measured == pytest.approx(25 * 2.4 / 34.0)


def test_several_sequences_are_held_against_passes_of_as_many(predicted: Predict) -> None:
    costs = pass_costs({(1, 1): 1.0, (4, 4): 2.0, (4, 8): 3.0})
    drafted = [tally(4, 4, 10, 60, 40.0), tally(1, 0, 5, 5, 5.0)]
    plain = [tally(4, 0, 15, 60, 30.0), tally(1, 0, 5, 5, 5.0)]
    found = predicted(plain, drafted, costs)
    # four guesses add 1 s
    assert found.predicted == pytest.approx((15 * 2.0 + 5 * 1.0) / (10 * (2.0 + 1.0) + 5 * 1.0))
    assert found.measured == pytest.approx((15 * 2.0 + 5 * 1.0) / 45.0)


def test_a_number_of_sequences_that_plain_decoding_never_had_takes_the_nearest(predicted: Predict) -> None:
    costs = pass_costs({(1, 1): 1.0, (4, 4): 1.0})
    drafted = [tally(3, 0, 1, 3, 1.0)]
    plain = [tally(4, 0, 10, 40, 20.0), tally(1, 0, 10, 10, 10.0)]
    found = predicted(plain, drafted, costs)
    assert found.measured == pytest.approx(2.0)


def test_what_the_engine_does_beside_the_trunk_is_in_every_pass(predicted: Predict) -> None:
    """A trunk so small that most of a pass is the engine's own work: further rows then cost next to nothing."""
    costs = pass_costs({(1, 1): 0.1, (1, 4): 0.2})
    drafted = [tally(1, 3, 10, 30, 11.0, 9.0)]
    plain = [tally(1, 0, 30, 30, 30.0, 27.0)]
    found = predicted(plain, drafted, costs)
    assert found.check_cost == pytest.approx(1.1)
    assert found.predicted == pytest.approx(3.0 / 1.1) == found.measured


def test_the_text_of_many_tokens_is_a_cost_of_drafting(predicted: Predict) -> None:
    """A pass of three tokens spells three, and a tiny trunk takes no longer than that."""
    costs = pass_costs({(1, 1): 0.1, (1, 4): 0.1})
    drafted = [tally(1, 3, 10, 30, 31.0, 30.0)]
    plain = [tally(1, 0, 30, 30, 33.0, 30.0)]
    found = predicted(plain, drafted, costs)
    assert found.predicted == pytest.approx(33.0 / 31.0) == found.measured


def test_sides_that_tell_no_passes_have_no_prediction(make_turn: MakeTurn) -> None:
    costs = pass_costs({(1, 1): 1.0})
    assert predict([make_turn("none", 0, 1.0)], [make_turn("heads", 0, 1.0)], costs) is None
    assert PassCosts.of([]) is None
    assert PassCosts.of([CostSample(cell="c", side="none", repeat=0, group="g", context=1)]) is None


def test_a_guess_looks_back_on_what_its_sequence_reads_anyway(predicted: Predict) -> None:
    """Over long texts another sequence is dear, a further row of one is not, and the last sequences run alone."""
    costs = pass_costs({(1, 1): 10.0, (1, 3): 11.0, (2, 2): 20.0, (2, 6): 22.0, (4, 4): 40.0, (4, 12): 46.0})
    assert costs.added_s(1, 2) == pytest.approx(1.0)
    assert costs.added_s(4, 4) == pytest.approx(3.0)
    assert costs.added_s(3, 4) == pytest.approx((2.0 + 3.0) / 2)  # between two sequences and four
    assert costs.added_s(9, 4) == pytest.approx(3.0)
    assert costs.points == {1: 10.0, 2: 20.0, 4: 40.0, 12: 46.0}
    drafted = [tally(1, 2, 10, 20, 110.0)]
    plain = [tally(1, 0, 20, 20, 200.0)]
    found = predicted(plain, drafted, costs)
    assert found.predicted == pytest.approx(2.0 / 1.1) == found.measured


def test_costs_are_medians_over_sides_and_turns() -> None:
    samples = [
        CostSample(
            cell="c", side=side, repeat=number, group="g", context=1,
            seconds={PassSize(1, 1): seconds, PassSize(1, 4): 2 * seconds},
        )
        for number, (side, seconds) in enumerate((("none", 1.0), ("heads", 9.0), ("none", 1.2)))
    ]  # fmt: skip
    costs = PassCosts.of(samples)
    assert costs is not None
    assert costs.points == {1: 1.2, 4: 2.4}
