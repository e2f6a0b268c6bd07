from __future__ import annotations

import random

import pytest

from headstart.decoding.calibration import Calibrator
from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import DraftRequest
from headstart.decoding.lookup import LookupDrafter
from headstart.decoding.policy import (
    PROBE_SHARE,
    Ledger,
    ProbeSchedule,
    allocate,
    best_rate,
    expected_speedup,
    max_useful_nodes,
)
from headstart.decoding.statistics import AcceptanceStatistics
from headstart.decoding.trees import chain
from headstart.decoding.verify import verify
from headstart.records import EMPTY_TREE, SamplingParams

# a good CPU kernel: eight rows cost 1.6 times one
CURVE = CostCurve({1: 0.0040, 2: 0.0043, 4: 0.0048, 8: 0.0064, 16: 0.0090, 32: 0.0160})


def test_a_row_that_does_not_pay_alone_may_pay_with_its_tile() -> None:
    stepped = CostCurve({1: 1.0, 2: 1.8, 8: 1.8, 9: 3.6})
    (part,) = allocate([chain(range(12), [0.95] * 12)], 1, stepped, 64)
    assert allocate([chain([1], [0.7])], 1, stepped, 64) == [EMPTY_TREE]
    assert len(part) == 7


def test_certain_guesses_are_not_taken_where_rows_cost_as_much_as_passes() -> None:
    proportional = CostCurve({1: 1.0})
    assert allocate([chain(range(8), [1.0] * 8)], 1, proportional, 64) == [EMPTY_TREE]


def test_a_gain_within_the_noise_is_left() -> None:
    tree = chain([1], [0.075 + 0.019])
    assert expected_speedup([tree], 1, CURVE) > 1.0
    assert allocate([tree], 1, CURVE, 64) == [EMPTY_TREE]


def test_rows_go_to_the_sequence_whose_guesses_are_likelier() -> None:
    sure, unsure = chain(range(8), [0.95] * 8), chain(range(8), [0.3] * 8)
    first, second = allocate([unsure, sure], 2, CURVE, max_rows=8)
    assert len(second) > len(first)
    assert len(first) + len(second) <= 6


def test_drafts_shrink_as_the_batch_grows() -> None:
    tree = chain(range(16), [0.8] * 16)
    nodes = [
        len(allocate([tree] * batch, batch, CostCurve({1: 1.0, 16: 1.6, 32: 3.2}), 256)[0]) for batch in (1, 8, 32)
    ]
    assert nodes[0] > nodes[1] > nodes[2] == 0


def test_a_dear_drafter_is_not_asked_where_a_cheap_one_is() -> None:
    assert max_useful_nodes([0.3], 1, 1, CURVE, 64) > 0
    assert max_useful_nodes([0.3], 1, 1, CURVE, 64, draft_cost_s=0.004) == 0


def test_expected_speedup_is_tau_over_v_plus_c() -> None:
    tree = chain(range(7), [1.0] * 7)
    assert expected_speedup([tree], 1, CURVE, draft_cost_s=0.0004) == pytest.approx(8 / (1.6 + 0.1))
    assert expected_speedup([EMPTY_TREE], 1, CURVE) == 1.0


@pytest.mark.parametrize("draft_cost", [0.0, 0.004, 0.1, 1.0, 3.0])
def test_a_drafter_that_does_not_pay_is_probed_as_often_as_the_share_allows(draft_cost: float) -> None:
    schedule, rounds = ProbeSchedule(), 1000
    probes = sum(schedule.allows(draft_cost) for _ in range(rounds))
    affordable = rounds if draft_cost <= PROBE_SHARE else int(rounds * PROBE_SHARE / draft_cost)
    assert probes == pytest.approx(affordable, abs=1)
    assert probes * draft_cost <= rounds * PROBE_SHARE + 1e-9


def test_probes_are_not_saved_up_for_later() -> None:
    schedule = ProbeSchedule()
    for _ in range(1000):
        schedule.allows(3.0)
    assert sum(schedule.allows(0.1) for _ in range(11)) <= 2


def test_the_best_rate_counts_what_drafting_costs() -> None:
    probabilities = [0.9, 0.8, 0.7, 0.1]
    rate, count = best_rate(probabilities, 1, CURVE, 64)
    assert (rate, count) == (pytest.approx(3.4 / CURVE.cost(4)), 3)
    assert best_rate(probabilities, 1, CURVE, 64, draft_cost_s=0.002)[0] == pytest.approx(3.4 / (CURVE.cost(4) + 0.002))
    plain = pytest.approx(1.05 / CURVE.cost(1))
    assert best_rate(probabilities, 1, CURVE, 64, draft_cost_s=1.0) == (plain, 0)
    assert best_rate(probabilities, 1, CURVE, 1) == (plain, 0)


class Simulation:
    """A drafter whose guesses are right with a given chance, under the whole policy."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calibrator = Calibrator()

    def drafted_nodes(self, acceptance: float, rounds: int, claimed: float = 0.8) -> list[int]:
        drafted = []
        for _ in range(rounds):
            draft = chain([1] * 12, [claimed] * 12)
            (part,) = allocate([self.calibrator.calibrate(draft)], 1, CURVE, 64)
            choices = [1 if self.random.random() < acceptance else 0 for _ in range(len(part) + 1)]
            verdict = verify(part, choices)
            self.calibrator.observe(draft, [1] * len(verdict.kept_nodes) + [verdict.next_token])
            drafted.append(len(part))
        return drafted


def test_wrong_guesses_lose_their_rows_and_right_ones_win_them_back() -> None:
    simulation = Simulation(seed=1)
    assert simulation.drafted_nodes(acceptance=0.0, rounds=1) != [0]
    simulation.drafted_nodes(acceptance=0.0, rounds=40)
    assert sum(simulation.drafted_nodes(acceptance=0.0, rounds=200)) == 0
    simulation.drafted_nodes(acceptance=1.0, rounds=40)
    assert min(simulation.drafted_nodes(acceptance=1.0, rounds=40)) >= 8


def test_a_modest_drafter_gets_modest_drafts() -> None:
    simulation = Simulation(seed=2)
    simulation.drafted_nodes(acceptance=0.4, rounds=200)
    drafted = simulation.drafted_nodes(acceptance=0.4, rounds=200)
    assert 1 <= sum(drafted) / len(drafted) <= 4


def decode_with_lookup(text: list[int], prompt_length: int) -> AcceptanceStatistics:
    """Decode a text that is known, as the engine would, and count."""
    drafter, calibrator, statistics = LookupDrafter(), Calibrator(), AcceptanceStatistics()
    state = drafter.open(text[:prompt_length], SamplingParams(), seed=0)
    written = prompt_length
    while written < len(text):
        (draft,) = drafter.propose([DraftRequest(state, 16, 16)])
        (part,) = allocate([calibrator.calibrate(draft)], 1, CURVE, 64)
        depth, node = 0, -1
        while written + depth < len(text):
            children = [
                n for n in range(len(part)) if part.parents[n] == node and part.tokens[n] == text[written + depth]
            ]
            if not children:
                break
            node, depth = children[0], depth + 1
        new = text[written : written + depth + 1]
        written += len(new)
        drafter.extend(state, new)
        calibrator.observe(draft, new)
        statistics.record(part, depth, len(new))
    return statistics


def test_text_that_does_not_repeat_is_decoded_plainly() -> None:
    source = random.Random(3)
    text = [source.randrange(300) for _ in range(1500)]  # words recur, what follows them does not
    statistics = decode_with_lookup(text, prompt_length=500)
    assert statistics.drafted_rounds / statistics.rounds < 0.05


def test_text_that_repeats_is_drafted_in_long_chains() -> None:
    source = random.Random(4)
    passage = [source.randrange(300) for _ in range(200)]
    statistics = decode_with_lookup(passage * 4, prompt_length=200)
    assert statistics.mean_acceptance_length > 8
    assert statistics.acceptance_rate > 0.9


def rested_rounds(ledger: Ledger, num_rounds: int, *, saved: float, spent: float) -> int:
    rested = 0
    for _ in range(num_rounds):
        if ledger.rests():
            rested += 1
        else:
            ledger.enter(saved, spent, 1.0)
    return rested


def test_a_loss_ends_whatever_the_estimates_say() -> None:
    ledger = Ledger()
    rested = rested_rounds(ledger, 2000, saved=0.0, spent=0.1)
    assert rested > 1500
    asked = 2000 - rested
    assert 0.1 * asked / 2000 < 0.025  # of the time is lost in all


@pytest.mark.parametrize("spent", [0.01, 0.03, 0.05])
def test_a_small_loss_without_end_becomes_smaller(spent: float) -> None:
    ledger = Ledger()
    rested_rounds(ledger, 500, saved=0.0, spent=spent)  # until it is known
    rested = rested_rounds(ledger, 2000, saved=0.0, spent=spent)
    assert spent * (2000 - rested) / 2000 <= 0.006


def test_a_trifle_is_borne() -> None:
    assert rested_rounds(Ledger(), 2000, saved=0.0, spent=0.004) == 0


def test_what_pays_never_rests() -> None:
    assert rested_rounds(Ledger(), 1000, saved=0.12, spent=0.1) == 0


def test_an_even_account_may_sway() -> None:
    ledger = Ledger()
    for _ in range(200):  # a guess in ten is kept, which just pays for the ten
        assert rested_rounds(ledger, 1, saved=1.0, spent=0.1) + rested_rounds(ledger, 9, saved=0.0, spent=0.1) == 0


def test_long_gains_do_not_excuse_a_long_loss() -> None:
    ledger = Ledger()
    rested_rounds(ledger, 1000, saved=3.0, spent=0.1)
    assert rested_rounds(ledger, 200, saved=0.0, spent=0.1) > 60


def test_drafts_come_back_once_they_pay() -> None:
    ledger = Ledger()
    rested_rounds(ledger, 1000, saved=0.0, spent=0.1)
    assert rested_rounds(ledger, 1000, saved=0.5, spent=0.1) <= 256
    assert rested_rounds(ledger, 1000, saved=0.5, spent=0.1) == 0
