"""A whole graft on a tiny model: every kind, interrupted anywhere, refused where it must be."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headstart import Engine, SamplingParams  # noqa: E402
from headstart.architectures.heads.config import RECURRENT_KINDS  # noqa: E402
from headstart.checkpoint.heads_file import open_heads  # noqa: E402
from headstart.checkpoint.safetensors import read_safetensors_header  # noqa: E402
from headstart.errors import ConfigError, HeadstartError  # noqa: E402
from headstart.testing.graft_runs import OUTCOME, PROMPTS, SMALL_GRAFT, metrics, stop_at, without_speed  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.graft import GraftResult, graft  # noqa: E402
from headstart.train.measured import AcceptanceMeter, MeasuredAcceptance  # noqa: E402
from headstart.train.phases import Progress  # noqa: E402
from headstart.train.plot import plot_run  # noqa: E402
from headstart.train.prompts import Prompt, PromptList  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_and_no_pictures")


def step_of_state(run: Path) -> int:
    metadata, _ = read_safetensors_header(run / "state.safetensors")
    return int(json.loads(metadata["progress"])["step"])


@pytest.mark.parametrize(
    ("kind", "choices"),
    [
        ("sequential", {}),
        ("sequential", {"unrolled": False}),
        ("sequential", {"own_unembedding": True}),
        ("eagle", {"feature_weight": 0.1}),
        ("eagle3", {"own_unembedding": True}),
        ("medusa", {}),
        ("medusa", {"num_layers": 2, "own_unembedding": True}),
        ("parallel", {}),
        ("parallel", {"form": "linear"}),
        ("parallel", {"num_layers": 2, "own_unembedding": True}),
    ],
)
def test_a_graft_of_every_kind_drafts_and_changes_nothing(
    kind: Any, choices: dict[str, Any], model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    config = replace(SMALL_GRAFT, kind=kind, text_tokens=None, **choices)
    result = graft(model, tmp_path, config, whole[0])
    assert result is not None
    assert result.heads == tmp_path / "heads.safetensors"
    file = open_heads(result.heads)
    made = file.header.heads
    assert made["kind"] == kind
    assert made["num_modules"] == (1 if kind in RECURRENT_KINDS and config.unrolled else config.depth)
    asked = (config.num_layers, config.form, config.own_unembedding)
    assert (made["num_layers"], made["form"], made["own_unembedding"]) == asked
    assert file.header.recipe["step"] == result.step
    assert file.header.measured["tau"] == result.measured.tau
    assert result.measured.tau == max(line["tau"] for line in metrics(tmp_path) if line["kind"] == "measured")
    params = SamplingParams(max_tokens=40)
    with Engine.load(model, draft="none", threads=1) as plain:
        expected = plain.generate("Say one.", params)
    with Engine.load(model, draft=f"heads:{result.heads}", threads=1) as engine:
        drafted = engine.generate("Say one.", params)
    assert drafted.token_ids == expected.token_ids
    assert drafted.drafter == "heads"


def test_the_best_heads_are_kept_and_not_the_last(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, taus, seen = AcceptanceMeter.measure, [1.5, 3.0, 2.0, 2.5], []

    def measure_otherwise(meter: AcceptanceMeter, weights: dict[str, Any]) -> MeasuredAcceptance:
        seen.append(weights)
        return replace(measure(meter, weights), tau=taus[len(seen) - 1])

    monkeypatch.setattr(AcceptanceMeter, "measure", measure_otherwise)
    config = replace(SMALL_GRAFT, text_tokens=None, checkpoints=3, learning_rate=0.02)
    result = graft(model, tmp_path, config, whole[0])
    assert result is not None
    steps = [line["step"] for line in metrics(tmp_path) if line["kind"] == "measured"]
    assert len(seen) == len(steps) == 4
    assert (result.step, result.measured.tau) == (steps[1], 3.0)
    file = open_heads(result.heads)
    assert (file.header.recipe["step"], file.header.measured["tau"]) == (steps[1], 3.0)
    name = "modules.0.layers.0.linear"
    found = file.tensor(name).dequantize()
    distances = [float(np.abs(found - weights[name]).max()) for weights in seen]
    assert distances.index(min(distances)) == 1


def test_the_metrics_tell_of_every_step(whole: tuple[Path, GraftResult]) -> None:
    run, result = whole
    lines = metrics(run)
    steps = [line for line in lines if line["kind"] == "step"]
    assert [line["step"] for line in steps] == list(range(1, result.num_steps + 1))
    assert all(np.isfinite(line["loss"]) and len(line["correct"]) == SMALL_GRAFT.depth for line in steps)
    for kind in ("validation", "measured"):
        at = [line["step"] for line in lines if line["kind"] == kind]
        assert at == sorted({0, -(-result.num_steps // 2), result.num_steps}), kind
    measured = [line for line in lines if line["kind"] == "measured"]
    for line in measured:
        a, s = line["conditional_acceptance"], line["survival"]
        assert s == pytest.approx([a[0], a[0] * a[1]])
        assert line["tau"] >= 1 + 0.9 * sum(s)  # a text's end may cut a round short
    assert steps[-1]["loss"] < steps[0]["loss"]


def test_the_recipe_and_the_result_tell_how_it_came_about(whole: tuple[Path, GraftResult]) -> None:
    run, result = whole
    recipe = open_heads(result.heads).header.recipe
    assert recipe["num_steps"] == result.num_steps
    assert recipe["text_tokens"] == result.text_tokens >= SMALL_GRAFT.text_tokens
    assert 0 < recipe["vocabulary_coverage"] <= 1
    assert recipe["distinct_8gram_share"] == result.distinct_8gram_share
    assert recipe["seed"] == SMALL_GRAFT.seed
    assert str(run) not in json.dumps(recipe)
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["kind"] == "medusa"
    assert config["versions"]["torch"] == torch.__version__


def test_a_run_that_is_stopped_in_every_phase_ends_as_one_that_is_not(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    run, expected = whole
    for phase, done in (("writing", 500.0), ("reading", 5.0), ("training", 1.0), ("training", 3.0), ("training", 4.0)):
        show, should_stop = stop_at(phase, done)
        assert graft(model, tmp_path, SMALL_GRAFT, PROMPTS, show=show, should_stop=should_stop) is None
        if phase == "training":  # no step that was taken is taken again
            assert step_of_state(tmp_path) == done
    result = graft(model, tmp_path, SMALL_GRAFT, PROMPTS)
    assert result is not None
    assert (result.measured, result.step) == (expected.measured, expected.step)
    for name in OUTCOME:
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes(), name
    assert without_speed(tmp_path) == without_speed(run)


def test_a_run_that_crashes_goes_on_from_its_last_state(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    run, _ = whole

    def crash_at(phase: str, done: float) -> Callable[[Progress], None]:
        def show(progress: Progress) -> None:
            if progress.phase == phase and progress.done >= done:
                raise RuntimeError("power cut")

        return show

    for phase, done in (("writing", 500.0), ("reading", 5.0), ("training", 1.0), ("training", 5.0)):
        with pytest.raises(RuntimeError, match="power cut"):
            graft(model, tmp_path, SMALL_GRAFT, PROMPTS, show=crash_at(phase, done))
    assert graft(model, tmp_path, SMALL_GRAFT, PROMPTS) is not None
    for name in OUTCOME:
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes(), name
    assert without_speed(tmp_path) == without_speed(run)


def test_a_finished_run_only_reports(model: Path, whole: tuple[Path, GraftResult], tmp_path: Path) -> None:
    run = shutil.copytree(whole[0], tmp_path / "run")
    shutil.rmtree(run / "taps")
    seen: list[Progress] = []
    result = graft(model, run, SMALL_GRAFT, PROMPTS, show=seen.append)
    assert result is not None
    assert not seen
    assert replace(result, heads=whole[1].heads, spent_s=0.0) == replace(whole[1], spent_s=0.0)
    assert result.spent_s == pytest.approx(whole[1].spent_s, abs=1.0)


def test_other_settings_are_refused_by_name(model: Path, whole: tuple[Path, GraftResult]) -> None:
    with pytest.raises(ConfigError, match=r"learning_rate was 0\.002 and is now 0\.001.*another folder"):
        graft(model, whole[0], replace(SMALL_GRAFT, learning_rate=1e-3), PROMPTS)
    with pytest.raises(ConfigError, match="prompts was"):
        graft(model, whole[0], SMALL_GRAFT, PromptList((Prompt(turns=("Hi",)), Prompt(turns=("Oh",)))))
    other = write_tiny_gguf(whole[0].parent / "other.gguf", seed=1)
    with pytest.raises(ConfigError, match="model was"):
        graft(other, whole[0], SMALL_GRAFT, PROMPTS)


def test_more_threads_are_no_other_run(model: Path, whole: tuple[Path, GraftResult]) -> None:
    assert graft(model, whole[0], replace(SMALL_GRAFT, threads=2), PROMPTS) is not None


def test_a_training_that_diverges_stops_and_leaves_the_heads_as_they_were(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    with pytest.raises(HeadstartError, match="the loss is"):
        graft(model, tmp_path, replace(SMALL_GRAFT, learning_rate=1e30), whole[0])
    assert open_heads(tmp_path / "heads.safetensors").header.recipe["step"] == 0
    assert all(np.isfinite(line["loss"]) for line in metrics(tmp_path) if line["kind"] == "step")


def test_minutes_count_over_resumptions_and_the_plan_stays(model: Path, tmp_path: Path) -> None:
    config = replace(SMALL_GRAFT, minutes=0.02, text_tokens=None, epochs=None)
    show, should_stop = stop_at("training", 1)
    assert graft(model, tmp_path, config, PROMPTS, show=show, should_stop=should_stop) is None
    decided = json.loads((tmp_path / "decisions.json").read_text())
    assert decided["spent_s"] > 0
    result = graft(model, tmp_path, config, PROMPTS)
    assert result is not None
    assert result.spent_s > decided["spent_s"]
    assert result.num_steps == decided["plan"]["num_steps"]


def test_epochs_limit_a_run_that_has_plenty_of_time(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    result = graft(model, tmp_path, replace(SMALL_GRAFT, minutes=600.0), whole[0])
    assert result is not None
    assert result.num_steps == whole[1].num_steps
    assert (tmp_path / "heads.safetensors").exists()


def test_time_that_is_spent_already_leaves_one_shard_and_one_step(model: Path, tmp_path: Path) -> None:
    result = graft(model, tmp_path, replace(SMALL_GRAFT, minutes=1e-6, text_tokens=None, epochs=None), PROMPTS)
    assert result is not None
    assert result.num_steps == 1
    assert len(list((tmp_path / "text").glob("shard-*"))) == 1
    assert [line["step"] for line in metrics(tmp_path) if line["kind"] == "measured"] == [0, 1]


def test_the_run_is_drawn_where_matplotlib_is(whole: tuple[Path, GraftResult], tmp_path: Path) -> None:
    assert not plot_run(metrics(whole[0]), tmp_path / "plot.svg")  # these tests do as if there were none
    assert not list(tmp_path.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "matplotlib.figure")
        pytest.importorskip("matplotlib")
        assert plot_run(metrics(whole[0]), tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"depth": 0}, "depth = 0"),
        ({"minutes": 0.0}, "minutes = 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"epochs": float("inf")}, "epochs = inf"),
        ({"loss": "kll"}, "Did you mean 'kl'"),
        ({"learn": "prompts"}, "one of all, answers"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1"),
        ({"depth_weights": "1,2,3"}, "3 weights for 2 depths"),
        ({"kind": "sequential", "num_layers": 2}, "no effect on sequential heads"),
        ({"feature_weight": 0.1}, "no meaning for medusa heads"),
        ({"first_depth_share": 0.5}, "no meaning for medusa heads"),
        ({"first_depth_share": 1.0}, "first_depth_share = 1.0"),
        ({"kind": "sequential", "unrolled": False, "first_depth_share": 0.5}, "no meaning for sequential heads"),
        ({"kind": "eagle3", "unrolled": False}, "unrolled = False has no meaning for eagle3 heads"),
        ({"form": "linear"}, "form = 'linear' has no meaning for medusa heads"),
        ({"kind": "parallel", "form": "round"}, "form = 'round'"),
        ({"kind": "parallel", "form": "linear", "num_layers": 2}, "form = 'linear' has no meaning"),
        ({"kind": "sequential", "unrolled": False, "depth": 1}, "unrolled = False has no meaning"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(SMALL_GRAFT, **changes)


def test_taps_that_the_model_lacks_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="read layer 7 of a trunk that has 2"):
        graft(model, tmp_path / "run", replace(SMALL_GRAFT, kind="eagle3", taps=(1, 7)), PROMPTS)
    assert not (tmp_path / "run").exists()
