"""Claims that hold where figures bear them out and nowhere else, and what their budgets are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headstart.errors import ConfigError
from paper.budgets import SMALL, SMOKE, Budget
from paper.claim import Claim, Figures, Finding, Job
from paper.claims import CLAIMS
from paper.drafting import PAYING
from paper.page import distinct_jobs
from paper.plots import draw


def made_up(job: Job, favour: float) -> Figures:
    """Figures in which every claim is right (`favour` 1) or wrong (-1); seeds differ a little."""
    noise = 0.001 * int(job.name[-1])
    if job.name.startswith("memory"):
        heads = 1 if "-n1-" in job.name else 8
        one_by_one = 0.5 * (1 - favour) if job.settings["order"] != "naive" else 0.0
        grown = 1.0 + noise + (heads - 1) * one_by_one
        return {"peak_bytes": 2e8 * grown + 1e8, "baseline_bytes": 1e8, "step_s": grown}
    if job.name.startswith("scoring"):
        gain = 0.0 if "-n1-" in job.name else 0.2
        groups = ["1 operation", "4 operations"] if "polynomials" in job.name else ["second token of a name"]
        return {"accuracy": dict.fromkeys(groups, 0.5 + favour * gain + noise), "asked": {}}
    if job.name.startswith("drafting"):
        better = 0.4 * ("sequential" in job.name) - 0.8 * ("grafted" in job.name) - 0.5 * ("far" in job.name)
        better += 0.1 * ("near" in job.name) + 0.3 * ("drafting-code" in job.name)
        keys = [str(depth) for depth in job.settings["depths"]] + [PAYING] * (job.settings["rounds_of_race"] > 0)
        return {"by_depth": {key: drafted(key, favour, better + noise) for key in keys}}
    worse = 0.3 * ("n4" in job.name) + 0.2 * ("weight3" in job.name) + 0.2 * ("far" in job.name)
    worse -= 0.1 * ("forward" in job.name or "reverse" in job.name)
    return {"parameters": 1e6, "tokens": 1e6, "bits_per_byte": 2.0 + favour * worse + noise}


def drafted(key: str, favour: float, better: float) -> Figures:
    depth = 0.1 * int(key) if key.isdigit() else 1.0
    value = 2.0 + favour * (better + depth)
    speedup = 1.0 + favour * (0.5 + depth + better)
    return {
        "tau": value, "tau_drawn": value, "speedup": speedup, "speedup_drawn": speedup, "tokens_per_s_drawn": 900.0,
        "plain_tokens_per_s_drawn": 300.0, "distinct_8gram_share": 0.5, "distinct_8gram_share_drawn": 0.9,
        "survival_drawn": [0.7, 0.5, 0.25],
    }  # fmt: skip


def found(claim: Claim, budget: Budget, favour: float) -> Finding:
    return claim.find(budget, {job.name: made_up(job, favour) for job in distinct_jobs(claim, budget)})


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_holds_where_figures_bear_it_out_and_not_where_they_show_the_opposite(name: str) -> None:
    assert {str(each.outcome) for each in found(CLAIMS[name], SMALL, 1.0).comparisons} == {"holds"}
    against = {each.outcome for each in found(CLAIMS[name], SMALL, -1.0).comparisons}
    assert "does not hold" in against
    assert "holds" not in against


@pytest.mark.parametrize("name", CLAIMS)
def test_one_seed_decides_nothing(name: str) -> None:
    budget = replace(SMALL, seeds=(0,), memory_repeats=1)
    finding = found(CLAIMS[name], budget, 1.0)
    assert {each.outcome for each in finding.comparisons} == {"too few seeds to say"}


@pytest.mark.parametrize("budget", [SMALL, SMOKE], ids=["small", "smoke"])
@pytest.mark.parametrize("name", CLAIMS)
def test_every_table_is_full(name: str, budget: Budget) -> None:
    for table in found(CLAIMS[name], budget, 1.0).tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.head)}


def test_wherever_greedy_acceptance_stands_so_does_that_at_temperature_1_and_repetition() -> None:
    heads = [table.head for claim in CLAIMS.values() for table in found(claim, SMALL, 1.0).tables]
    with_acceptance = [head for head in heads if any("greedy" in cell for cell in head)]
    assert len(with_acceptance) >= 6
    for head in with_acceptance:
        at = head.index("tokens a pass, greedy")
        assert head[at + 1 : at + 4] == (
            "distinct 8-byte runs", "tokens a pass, temperature 1", "distinct 8-byte runs",
        )  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_every_plot_can_be_drawn(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    plots = found(CLAIMS[name], SMALL, 1.0).plots
    assert len({plot.name for plot in plots}) == len(plots)
    for plot in plots:
        text = draw(plot, tmp_path).read_text()
        assert all(line.label in text for line in plot.lines)


def test_small_has_seeds_enough_to_decide() -> None:
    assert len(SMALL.seeds) >= 3
    assert SMALL.memory_repeats >= 3


def test_equal_compute_is_as_many_operations() -> None:
    from headstart.train.pretrain.model_config import PretrainHeads
    from headstart.train.pretrain.scale import scale_of
    from paper.models import pretraining, steps_of_equal_compute

    alone = pretraining(SMALL.text_model, PretrainHeads(n=1), 0)
    several = pretraining(SMALL.text_model, PretrainHeads(n=4), 0)
    steps = steps_of_equal_compute(several, alone)
    assert 0 < steps < SMALL.text_model.steps
    spent = steps * scale_of(several).flops_per_token
    assert spent == pytest.approx(SMALL.text_model.steps * scale_of(alone).flops_per_token, rel=0.01)


def test_at_equal_parameters_heads_take_the_place_of_blocks() -> None:
    from headstart.train.pretrain.model_config import PretrainHeads
    from headstart.train.pretrain.scale import scale_of
    from paper.models import pretraining

    alone, equal, more = (
        scale_of(pretraining(SMALL.polynomial_model, heads, 0)).parameters
        for heads in (PretrainHeads(n=1), PretrainHeads(n=4, equal_parameters=True), PretrainHeads(n=4))
    )
    assert equal == pytest.approx(alone, rel=0.002)  # but for the norms at the heads' ends
    assert more > 1.3 * alone


def test_a_budget_whose_texts_are_longer_than_models_know_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Budget smoke: prompts and answers of 80 tokens do not fit a window of 64"):
        replace(SMOKE, answer_tokens=64)
