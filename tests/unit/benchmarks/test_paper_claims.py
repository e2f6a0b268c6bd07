"""What claims make of figures: by one rule, in the direction that is claimed, and on a page without gaps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.errors import CheckpointError, ConfigError
from paper import run as command
from paper.budgets import SMALL, SMOKE, Budget
from paper.claim import Claim, Figures, Finding, Job, Line, Plot, Table
from paper.claims import CLAIMS
from paper.corpora import contents_of, scored_digest
from paper.drafting import PAYING
from paper.judgement import Comparison, overall
from paper.page import distinct_jobs, state_of, write_page
from paper.plots import draw
from paper.tasks import induction
from paper.workspace import Workspace

# ---- one rule


@pytest.mark.parametrize(
    ("differences", "outcome"),
    [
        ((0.5, 0.6, 0.4), "holds"),
        ((-0.5, -0.6, -0.4), "does not hold"),
        ((0.5, 0.6, -0.1), "within noise"),
        ((0.01, 0.02, 3.0), "within noise"),  # all above zero, but their mean is one seed's
        ((-0.01, -0.02, -3.0), "within noise"),
        ((1.0, 2.0, 3.5), "within noise"),  # three standard errors, which three seeds give by chance
        ((1.0, 2.0, 3.5, 2.2, 1.5), "holds"),
        ((3.0, 3.0, 3.0, 3.0, -0.1), "holds"),
        ((0.0, 0.0, 0.0), "within noise"),
        ((0.5, 0.5, 0.5), "holds"),
        ((5.0, 6.0), "too few seeds to say"),
        ((-5.0,), "too few seeds to say"),
    ],
)
def test_a_comparison_needs_three_seeds_that_agree_beyond_their_spread(
    differences: tuple[float, ...], outcome: str
) -> None:
    assert Comparison("x", differences).outcome == outcome


@pytest.mark.parametrize("seeds", range(3, 12))
def test_where_there_is_nothing_one_comparison_in_twenty_comes_out_at_most(seeds: int) -> None:
    draws = np.random.default_rng(seeds).normal(size=(4000, seeds))
    found = [Comparison("x", tuple(map(float, each))).outcome for each in draws]
    share = sum(outcome != "within noise" for outcome in found) / len(found)
    assert 0.03 < share < 0.06


def test_a_comparison_says_its_outcome_with_every_seed() -> None:
    spoken = str(Comparison("more heads cost bits", (0.5, 0.25, -0.3), "bits a byte"))
    assert spoken == ("more heads cost bits: within noise (+0.15 bits a byte on average; by seed +0.5, +0.25, -0.3)")


def test_outcomes_of_a_claim_are_counted_where_they_differ() -> None:
    holds, fails, noise = (
        Comparison("x", values) for values in ((1.0, 1.0, 1.0), (-1.0, -1.0, -1.0), (1.0, -1.0, 1.0))
    )
    assert overall([holds, holds]) == "holds"
    assert overall([fails]) == "does not hold"
    assert overall([noise, holds, fails, holds]) == "holds in 2, does not hold in 1, within noise in 1 of 4"


# ---- directions: figures made up so that each claim is right, or wrong


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


# ---- what is finished, and what is not


def counting_claim(name: str, done: list[str]) -> Claim:
    """Two jobs that note that they were done."""

    def job(number: int) -> Job:
        def run(workspace: Workspace) -> Figures:
            done.append(f"{name}-{number}")
            return {"value": number}

        return Job(name=f"{name}-{number}", settings={"sizes": (1, 2)}, run=run, estimate=lambda stopwatch: 1.0)

    def find(budget: Budget, figures: Any) -> Finding:
        values = tuple(2 + figures[f"{name}-{number}"]["value"] for number in (1, 2, 1))
        return Finding(
            model="a model",
            data="a | text",
            comparisons=(Comparison("one above none", values),),
            tables=(Table(head=("what", "value"), rows=(("one", "1"),)),),
            plots=(Plot(name="a-plot", title="t", x_label="x", y_label="y", lines=(
                Line(label="l", points=((1.0, (1.0, 2.0)), (2.0, (3.0,)))),)),),
        )  # fmt: skip

    return Claim(
        name=name, statement=f"Claim {name}", source="someone", method="somehow", find=find,
        jobs=lambda budget: [job(1), job(2), job(1)],
    )  # fmt: skip


def no_versions() -> dict[str, str]:
    return {}


def test_a_finished_job_is_not_done_again_and_a_claim_has_no_outcome_before_all_are(tmp_path: Path) -> None:
    done: list[str] = []
    claim = counting_claim("c", done)
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    first, second = distinct_jobs(claim, SMOKE)
    workspace.do(first, no_versions)
    assert state_of(claim, workspace).to_json()["outcome"] is None
    again = Workspace(tmp_path, SMOKE, threads=1)
    again.do(first, no_versions)
    again.do(second, no_versions)
    assert done == ["c-1", "c-2"]
    state = state_of(claim, again).to_json()
    assert (state["jobs_done"], state["jobs"], state["outcome"]) == (2, 2, "holds")
    assert state["comparisons"][0]["differences"] == [3.0, 4.0, 3.0]


def test_a_job_that_was_done_with_other_settings_is_refused(tmp_path: Path) -> None:
    job = distinct_jobs(counting_claim("c", []), SMOKE)[0]
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    workspace.do(job, no_versions)
    with pytest.raises(
        ConfigError, match=r"c-1\.json was done with other settings: sizes was \[1, 2\] and is now \[1\]"
    ):
        workspace.figures(replace(job, settings={"sizes": (1,)}))


def all_settings(budget: Budget) -> dict[tuple[str, str], dict[str, Any]]:
    """By claim and job."""
    return {
        (name, job.name): dict(job.settings) for name, claim in CLAIMS.items() for job in distinct_jobs(claim, budget)
    }


def forget_digests() -> None:
    contents_of.cache_clear()
    scored_digest.cache_clear()


ON_CODE = {"grafted", "sequence", "quality", "loss-weights"}


@pytest.mark.parametrize(
    ("change", "claims", "kinds"),
    [
        ({"prompts": 3}, {*ON_CODE, "speed"}, {"drafting"}),
        ({"answer_tokens": 8}, {*ON_CODE, "speed"}, {"drafting"}),
        ({"rounds": 7}, {"speed"}, {"drafting"}),
        ({"code": ("docs",)}, {*ON_CODE, "speed"}, {"code", "drafting"}),
        ({"prose": ("stdlib",)}, {"speed"}, {"prose", "drafting"}),
        ({"task_items": 9}, {"induction", "polynomials"}, {"scoring"}),
        ({"task_training_items": 5000}, {"induction", "polynomials"}, {"induction", "polynomials", "scoring"}),
        ({"polynomial_ring": (5, 3)}, {"polynomials"}, {"polynomials", "scoring"}),
        ({"induction_rare_one_of": 3}, {"induction"}, {"induction", "scoring"}),
        ({"induction_model": SMALL.text_model}, {"induction"}, {"induction", "scoring"}),
        ({"memory_steps": 2}, {"memory"}, {"memory"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_budget_s_change_makes_the_jobs_that_depend_on_it_others_and_no_more(
    change: dict[str, Any], claims: set[str], kinds: set[str]
) -> None:
    before, now = all_settings(SMOKE), all_settings(replace(SMOKE, **change))
    other = {key for key in before if before[key] != now[key]}
    assert {claim for claim, _ in other} == claims
    assert {job.split("-")[0] for _, job in other} == kinds


def test_a_task_that_is_drawn_otherwise_makes_its_models_and_scores_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = all_settings(SMOKE)
    monkeypatch.setattr(induction, "_SENTENCES", ("{0} rode with {1}.",))
    forget_digests()
    now = all_settings(SMOKE)
    forget_digests()
    assert {key for key in before if before[key] != now[key]} == {key for key in before if key[0] == "induction"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "c-1"}'])
def test_a_damaged_file_of_figures_is_named(tmp_path: Path, text: str) -> None:
    job = distinct_jobs(counting_claim("c", []), SMOKE)[0]
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    workspace.do(job, no_versions)
    (tmp_path / "smoke" / "jobs" / "c-1.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"c-1\.json: damaged"):
        workspace.figures(job)


def test_a_job_that_fails_leaves_no_figures(tmp_path: Path) -> None:
    def fail(workspace: Workspace) -> Figures:
        raise KeyboardInterrupt

    job = replace(distinct_jobs(counting_claim("c", []), SMOKE)[0], run=fail)
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    with pytest.raises(KeyboardInterrupt):
        workspace.do(job, no_versions)
    assert workspace.figures(job) is None


def test_the_page_has_every_claim_and_says_of_those_not_run_that_they_are_not(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    workspace = Workspace(tmp_path, SMOKE, threads=1)
    run, half, not_run = (counting_claim(name, []) for name in ("run", "half", "none"))
    for job in (*distinct_jobs(run, SMOKE), distinct_jobs(half, SMOKE)[0]):
        workspace.do(job, no_versions)
    page = tmp_path / "page.md"
    write_page(page, [state_of(claim, workspace) for claim in (run, half, not_run)], SMOKE, threads=1)
    text = page.read_text()
    assert "| Claim run | a model | a \\| text | 3 | 0 min | holds |" in text
    assert "| Claim half | – | – | – | – | not run: 1 of 2 jobs are done |" in text
    assert "| Claim none | – | – | – | – | not run: nothing is done |" in text
    assert text.count("Not run with this budget.") == 2
    assert "- one above none: holds (+3.33 on average; by seed +3, +4, +3)" in text
    assert "](page/a-plot.svg)" in text
    drawn = (tmp_path / "page" / "a-plot.svg").read_bytes()
    assert drawn.startswith(b"<?xml")
    write_page(page, [state_of(claim, workspace) for claim in (run, half, not_run)], SMOKE, threads=1)
    assert page.read_text() == text
    assert (tmp_path / "page" / "a-plot.svg").read_bytes() == drawn


def test_a_page_keeps_what_it_says_of_claims_that_are_not_finished_in_this_folder(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second, third = (counting_claim(name, []) for name in ("first", "second", "third"))
    page, places = tmp_path / "page.md", [tmp_path / name for name in ("a", "b")]
    for claim, place in zip((first, second), places, strict=True):
        workspace = Workspace(place, SMOKE, threads=1)
        for job in distinct_jobs(claim, SMOKE):
            workspace.do(job, no_versions)
        write_page(page, [state_of(each, workspace) for each in (first, second, third)], SMOKE, threads=1)
    text = page.read_text()
    together = Workspace(tmp_path / "both", SMOKE, threads=1)
    for claim in (first, second):
        for job in distinct_jobs(claim, SMOKE):
            together.do(job, no_versions)
    whole = tmp_path / "whole" / "page.md"
    whole.parent.mkdir()
    write_page(whole, [state_of(each, together) for each in (first, second, third)], SMOKE, threads=1)
    assert text.count("| holds |") == 2
    assert text.count("not run: nothing is done") == 1
    assert text == whole.read_text().replace(str(whole), str(page))

    # of a claim that is tried in another way by now nothing is kept
    nothing = Workspace(tmp_path / "nothing", SMOKE, threads=1)
    write_page(page, [state_of(each, nothing) for each in (first, replace(second, method="twice"))], SMOKE, threads=1)
    assert page.read_text().count("| holds |") == 1

    # of another budget nothing is
    other = replace(SMOKE, name="other")
    write_page(page, [state_of(each, Workspace(tmp_path, other, threads=1)) for each in (first, second)], other, 1)
    assert page.read_text().count("Not run with this budget.") == 2


# ---- the command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sped"], "claim 'sped' is not known. Did you mean 'speed'?"),
        (["zzzz"], "claim 'zzzz' is not known. There are memory, speed, "),
        (["--threads", "0"], "--threads = 0: it must be at least 1"),
        (["--only-page"], "--only-page writes nothing without --page"),
        (["--only-page", "--only-estimate", "--page", "x.md"], "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert command.run([*arguments, "--out", str(tmp_path), "--budget", "smoke"]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_page_of_nothing_is_written_and_the_document_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    arguments = ["speed", "--out", str(tmp_path / "out"), "--only-page", "--page", str(page), "--json"]
    assert command.run(arguments) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(each["claim"], each["outcome"], each["jobs_done"]) for each in document["claims"]] == [("speed", None, 0)]
    assert page.read_text().count("Not run with this budget.") == len(CLAIMS)
