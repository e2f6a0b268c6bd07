from __future__ import annotations

from typing import Any

import pytest

from headstart.measure.report import Spread
from headstart.measure.report.figures import Acceptance, CellFigures, SideFigures
from headstart.measure.report.latency import Latency
from headstart.measure.report.prediction import Prediction
from headstart.measure.report.verdict import judge, pays

NO_LATENCY = Latency(first_token_s=None, request_s=None, token_s=None, pause_s=None)
GOOD, EVEN, BAD = Spread(1.4, 1.35, 1.45), Spread(1.01, 0.99, 1.02), Spread(0.8, 0.75, 0.85)


def side(name: str, speedup: Spread | None, categories: dict[str, Spread] | None = None, **fields: Any) -> SideFigures:
    return SideFigures(
        **{
            "side": name,
            "num_requests": 10,
            "tokens_per_s": Spread(100.0, 90.0, 110.0),
            "speedup": speedup,
            "speedup_by_category": categories or {},
            "latency": NO_LATENCY,
            "acceptance": None,
            "acceptance_by_category": {},
            "prediction": None,
            "num_compared": 10,
            "different": (),
            **fields,
        }
    )


def cell(*sides: SideFigures, batch: int = 1, context: int | None = None) -> CellFigures:
    key = f"{batch} at once" + (f", {context} tokens" if context else "")
    load = {"kind": "closed", "concurrency": batch}
    return CellFigures(key=key, load=load, context=context, sides=(side("none", None), *sides))


def prediction(tau: float, v: float, c: float) -> Prediction:
    return Prediction(
        mean_acceptance_length=tau, check_cost=v, draft_cost=c, predicted=tau / (v + c), measured=tau / (v + c)
    )


def acceptance(rounds: int, drafted: int) -> Acceptance:
    return Acceptance(
        rounds=rounds, drafted=drafted, accepted=0, mean_acceptance_length=1.0, acceptance_rate=0.0,
        conditional=(), survival=(), reached=(), accepted_by_drafter={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [(GOOD, True), (Spread(1.4, 0.99, 1.5), False), (Spread(1.02, 1.01, 1.03), False), (BAD, False)],
)
def test_what_pays_does_so_in_every_repeat_and_by_a_margin(speedup: Spread, expected: bool) -> None:
    assert pays(speedup) is expected


def test_kept_for_the_traffic_that_gains() -> None:
    verdict = judge([cell(side("heads", GOOD, {"code": GOOD, "maths": GOOD, "writing": BAD}))])
    assert (verdict.decision, verdict.side) == ("keep", "heads")
    assert (verdict.categories, verdict.other_categories) == (("code", "maths"), ("writing",))
    assert verdict.sentence.startswith(
        "Keep heads: 1.40 times plain speed (1.35 to 1.45) with 1 at once, for code and "
    )
    assert "not for writing" in verdict.sentence
    assert "more than 1 at once was not measured" in verdict.sentence


def test_up_to_the_concurrency_at_which_it_first_fails() -> None:
    cells = [
        cell(side("heads", speedup), batch=batch) for batch, speedup in ((8, GOOD), (1, GOOD), (4, EVEN), (2, GOOD))
    ]
    verdict = judge(cells)
    assert verdict.up_to_concurrency == 2  # that it pays at 8 again is no promise for 4
    assert "up to 2 at once and not with 4" in verdict.sentence


def test_up_to_the_context_at_which_it_first_fails() -> None:
    cells = [
        cell(side("heads", speedup), context=context, batch=batch)
        for batch in (1, 4)
        for context, speedup in ((128, GOOD), (2048, GOOD if batch == 4 else BAD))
    ]
    verdict = judge(cells)
    assert (verdict.up_to_context, verdict.up_to_concurrency) == (128, 4)
    assert "up to a context of 128 tokens and not with 2048" in verdict.sentence


def test_the_best_side_is_judged_and_one_that_pays_at_first_goes_before() -> None:
    assert judge([cell(side("lookup", EVEN), side("heads", GOOD))]).side == "heads"
    cells = [
        cell(side("lookup", Spread(1.2, 1.1, 1.3)), side("heads", Spread(1.6, 0.9, 2.0))),
        cell(side("lookup", BAD), side("heads", GOOD), batch=4),
    ]
    assert judge(cells).side == "lookup"


def test_kept_for_some_traffic_alone_only_by_twice_the_margin() -> None:
    assert judge([cell(side("heads", EVEN, {"code": GOOD, "writing": BAD}))]).decision == "partly"
    by_chance = judge([cell(side("heads", EVEN, {"code": Spread(1.04, 1.01, 1.05), "writing": BAD}))])
    assert by_chance.decision == "drop"
    assert (by_chance.categories, by_chance.other_categories) == ((), ("code", "writing"))


def test_dropped_and_what_would_change_it() -> None:
    dear_drafts = judge([cell(side("heads", BAD, prediction=prediction(1.5, 1.2, 0.8)))])
    assert dear_drafts.decision == "drop"
    assert dear_drafts.sentence.startswith("Do without heads: 0.80 times plain speed")
    assert "more than 2.06 tokens to pay and gives 1.50; cheaper drafting" in dear_drafts.would_change
    dear_rows = judge([cell(side("heads", BAD, prediction=prediction(1.5, 1.8, 0.2)))])
    assert "cheaper checking (it adds 0.80" in dear_rows.would_change
    idle = judge([cell(side("heads", EVEN, prediction=prediction(1.0, 1.0, 0.0), acceptance=acceptance(100, 2)))])
    assert "hardly anything was drafted" in idle.would_change


def test_what_would_end_it_is_told_of_the_first_cell_that_fails() -> None:
    cells = [
        cell(side("heads", GOOD, prediction=prediction(2.5, 1.3, 0.4))),
        cell(side("heads", BAD, prediction=prediction(2.5, 3.0, 0.4)), batch=16),
    ]
    assert "With 16 at once, a round must give more than 3.50 tokens" in judge(cells).would_change
    assert "below 1.75 tokens a round, where it gives 2.50" in judge(cells[:1]).would_change


def test_a_round_that_gives_enough_is_not_asked_for_more() -> None:
    """Decoding pays here; what does not is the turn with its prompts, or a repeat."""
    verdict = judge([cell(side("heads", Spread(1.02, 0.99, 1.03), prediction=prediction(2.5, 2.0, 0.3)))])
    assert verdict.decision == "drop"
    assert "must give more" not in verdict.would_change
    assert "decoding alone has 1.09 times plain speed" in verdict.would_change


def test_repeats_that_disagree_say_nothing() -> None:
    verdict = judge([cell(side("heads", Spread(1.02, 0.8, 1.3)))])
    assert verdict.decision == "unsure"
    assert "a single repeat" in judge([cell(side("heads", Spread(1.3, 1.3, 1.3)))]).sentence
    assert "repeats" in verdict.would_change.lower()


def test_a_side_that_changes_texts_is_out() -> None:
    changed = side("lookup", Spread(3.0, 2.9, 3.1), different=("a", "b"))
    other = judge([cell(changed, side("heads", GOOD))])
    assert (other.side, other.decision, other.broken_sides) == ("heads", "keep", ("lookup",))
    assert other.sentence.endswith(
        "Do not use lookup: lookup changed 2 of 10 texts; headstart check looks for the fault."
    )
    assert judge([cell(side("heads", GOOD))]).broken_sides == ()
    verdict = judge([cell(changed)])
    assert verdict.decision == "broken"
    assert verdict.broken_sides == ("lookup",)
    assert "lookup changed 2 of 10 texts" in verdict.sentence


def test_on_servers_other_texts_are_told_and_do_not_decide() -> None:
    verdict = judge([cell(side("drafting", GOOD, different=("a",)))], is_exact=False)
    assert verdict.decision == "keep"
    assert "It changed 1 of 10 texts; headstart check" in verdict.would_change


def test_a_run_without_anything_to_compare() -> None:
    assert judge([]).decision == "unknown"
    assert judge([cell(side("heads", None))]).decision == "unknown"
