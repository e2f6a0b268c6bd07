"""Claims tried for real, with models that learn nothing in their few steps: what is trained, measured and kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

import training_memory  # noqa: E402
from head_figures.acceptance import Identity  # noqa: E402
from headstart import Engine, SamplingParams  # noqa: E402
from headstart.errors import HeadstartError  # noqa: E402
from headstart.train.corpus import prepare_corpus  # noqa: E402
from headstart.train.corpus.prepare import CorpusConfig  # noqa: E402
from headstart.train.pretrain.config import PretrainConfig  # noqa: E402
from headstart.train.pretrain.model_config import PretrainHeads  # noqa: E402
from paper import run as command  # noqa: E402
from paper.budgets import BUDGETS, Budget  # noqa: E402
from paper.claims import CLAIMS  # noqa: E402
from paper.models import model_job, pretraining  # noqa: E402
from paper.page import distinct_jobs  # noqa: E402
from paper.scoring import answers, scoring_job  # noqa: E402
from paper.stopwatch import Stopwatch  # noqa: E402
from paper.tasks.item import Item  # noqa: E402
from paper.workspace import Workspace  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def budget(little_budget: Budget, monkeypatch: pytest.MonkeyPatch) -> Budget:
    """What `--budget smoke` spends here."""
    monkeypatch.setitem(BUDGETS, "smoke", little_budget)
    return little_budget


@pytest.fixture
def tried(tmp_path: Path, budget: Budget, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """`tried("speed")`: runs the command; the claim's part of its document."""

    def run(claim: str, *further: str) -> dict[str, Any]:
        arguments = [claim, "--out", str(tmp_path / "out"), "--budget", "smoke", "--json", *further]
        assert command.run(arguments) == 0
        document = json.loads(capsys.readouterr().out.splitlines()[-1])
        (found,) = document["claims"]
        return dict(found)

    return run


def figures_of(tmp_path: Path, job: str) -> dict[str, Any]:
    return dict(json.loads((tmp_path / "out" / "smoke" / "jobs" / f"{job}.json").read_text())["figures"])


def test_heads_are_trained_grafted_and_measured_beside_each_other(
    tmp_path: Path, tried: Callable[..., dict[str, Any]]
) -> None:
    found = tried("grafted")
    assert found["jobs_done"] == found["jobs"] == 9
    assert found["outcome"] == "too few seeds to say"
    together = figures_of(tmp_path, "drafting-code-parallel-n4-seed0")["by_depth"]["3"]
    grafted = figures_of(tmp_path, "drafting-code-grafted-parallel-seed0")["by_depth"]["3"]
    assert found["comparisons"][0]["differences"] == [pytest.approx(together["tau"] - grafted["tau"])]
    assert found["comparisons"][1]["differences"] == [pytest.approx(together["tau_drawn"] - grafted["tau_drawn"])]
    assert 1.0 <= grafted["tau"] <= 4.0
    assert 0.0 < grafted["distinct_8gram_share"] <= 1.0
    # both claims stand on the same runs
    assert tried("sequence", "--only-estimate")["jobs_done"] == 9


def test_speed_is_measured_for_every_number_of_heads(tmp_path: Path, tried: Callable[..., dict[str, Any]]) -> None:
    assert tried("speed")["jobs_done"] == 4
    for corpus in ("code", "prose"):
        found = figures_of(tmp_path, f"drafting-{corpus}-n8-seed0")
        assert list(found["by_depth"]) == ["1", "2", "3", "4", "5", "6", "7", "paying"]
        for key, each in found["by_depth"].items():
            for kind in ("", "_drawn"):
                ratio = each[f"tokens_per_s{kind}"] / each[f"plain_tokens_per_s{kind}"]
                assert each[f"speedup{kind}"] == pytest.approx(ratio, rel=1e-6)
            # left alone, a module that is unrolled may go on to twice the depth it was trained for
            most = 1 + (int(key) if key.isdigit() else 14)
            assert 1.0 <= each["tau"] <= most
            assert len(each["survival_drawn"]) <= most - 1
        # greedy and drawn, for acceptance and for speed, for each of eight ways, two prompts
        assert found["plain"]["num_compared"] == 8 * 2 * 2 * 2


def test_a_draft_that_changes_a_text_is_a_failure_and_no_figure(
    tmp_path: Path, tried: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare_wrongly(self: Identity, name: str, plain: object, drafted: object) -> None:
        self.num_compared += 1
        self.different.append(name)

    monkeypatch.setattr(Identity, "compare", compare_wrongly)
    workspace = Workspace(tmp_path / "out", BUDGETS["smoke"], threads=1)
    model, measured = distinct_jobs(CLAIMS["speed"], BUDGETS["smoke"])[:2]
    workspace.do(model, dict)
    with pytest.raises(HeadstartError, match=r"code-n8-seed0: 64 of 64 drafted texts differ"):
        workspace.do(measured, dict)
    assert workspace.figures(measured) is None


@pytest.mark.parametrize(("task", "num_groups"), [("polynomials", 5), ("induction", 1)])
def test_a_task_is_trained_on_and_scored_by_groups(tmp_path: Path, budget: Budget, task: str, num_groups: int) -> None:
    workspace = Workspace(tmp_path / "out", budget, threads=1)
    model = model_job(budget, "m", task, pretraining(budget.induction_model, PretrainHeads(n=2), 0))
    score = scoring_job(budget, model, task)
    for job in (model, score):
        workspace.do(job, dict)
    figures = workspace.figures(score)
    assert figures is not None
    assert list(figures["asked"].values()) == [budget.task_items] * num_groups
    assert figures["accuracy"].keys() == figures["asked"].keys()
    assert all(0.0 <= share <= 1.0 for share in figures["accuracy"].values())


class Answering:
    """An engine that knows the answers of some items, and is asked for nothing but these."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known

    def generate_many(self, prompts: Sequence[str], params: SamplingParams) -> list[SimpleNamespace]:
        assert params.temperature == 0.0
        return [SimpleNamespace(text=self._known[prompt][: params.max_tokens]) for prompt in prompts]


def test_as_many_tokens_are_asked_for_as_the_answer_has() -> None:
    items = [Item("a=", "1"), Item("b=", "2"), Item("c=", "345"), Item("d=", "6")]
    engine = Answering({"a=": "1111", "b=": "0222", "c=": "3456", "d=": "6666"})
    assert answers(cast(Engine, engine), items) == ["1", "0", "345", "6"]


def test_what_was_interrupted_goes_on_and_trains_nothing_twice(
    tmp_path: Path, budget: Budget, tried: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headstart.train.pretrain import run as pretraining_run

    original, trained = pretraining_run.pretrain, []

    def interrupted(config: PretrainConfig, out: Path, **settings: Any) -> Any:
        trained.append(out.name)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return original(config, out, **settings)

    monkeypatch.setattr(pretraining_run, "pretrain", interrupted)
    arguments = ["quality", "--out", str(tmp_path / "out"), "--budget", "smoke"]
    assert command.run(arguments) == 130
    assert len(trained) == 3
    assert tried("quality")["jobs_done"] == 9
    # the one that was interrupted comes again, those before it do not
    assert len(trained) == 6
    assert trained[3] == trained[2]
    assert len(set(trained)) == 5
    assert tried("quality")["jobs_done"] == 9
    assert len(trained) == 6


def test_an_estimate_does_nothing(tmp_path: Path, tried: Callable[..., dict[str, Any]]) -> None:
    assert tried("loss-weights", "--only-estimate")["jobs_done"] == 0
    assert not (tmp_path / "out" / "smoke" / "jobs").exists()
    assert not (tmp_path / "out" / "smoke" / "models").exists()


def test_a_step_that_does_more_is_estimated_longer(tmp_path: Path, budget: Budget) -> None:
    little = replace(budget.text_model, hidden_size=32, num_layers=1)
    large = replace(budget.text_model, hidden_size=256, num_layers=6, batch_windows=8)
    stopwatch = Stopwatch(Workspace(tmp_path / "out", budget, threads=1))
    short, long = (
        model_job(budget, name, "code", pretraining(sizes, PretrainHeads(n=2), 0)).estimate(stopwatch)
        for name, sizes in (("little", little), ("large", large))
    )
    assert long > 2 * short > 0


def test_a_cell_of_memory_is_of_its_own_process_and_smaller_in_chunks() -> None:
    mine = bytearray(700 << 20)  # what this process holds is none of the cells'
    peaks = {}
    for order in ("naive", "head_by_head_chunked"):
        cell = training_memory.measure_cell(order, 4, vocabulary=8192, threads=1)
        assert cell["baseline_bytes"] < len(mine)
        assert cell["step_s"] > 0
        peaks[order] = cell["peak_bytes"] - cell["baseline_bytes"]
    all_logits = 4 * training_memory.TOKENS * 8192 * 4
    assert peaks["naive"] > all_logits
    assert 0 < peaks["head_by_head_chunked"] < peaks["naive"] - all_logits / 2


def test_a_corpus_is_prepared_once(tmp_path: Path, budget: Budget) -> None:
    workspace = Workspace(tmp_path / "out", budget, threads=1)
    corpus = workspace.corpus("code")
    assert workspace.corpus("code") is corpus
    again = prepare_corpus(workspace.corpus_folder("code"), CorpusConfig(sources=budget.code))
    assert again.digest == corpus.digest
