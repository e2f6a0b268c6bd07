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
from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.checkpoint.heads_file import open_heads  # noqa: E402
from headstart.checkpoint.safetensors import read_safetensors_header  # noqa: E402
from headstart.errors import CheckpointError, ConfigError, HeadstartError  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.graft import GraftResult, graft  # noqa: E402
from headstart.train.graft_config import GraftConfig  # noqa: E402
from headstart.train.holdout import hold_out  # noqa: E402
from headstart.train.measured import AcceptanceMeter, MeasuredAcceptance  # noqa: E402
from headstart.train.phases import Progress  # noqa: E402
from headstart.train.plot import plot_run  # noqa: E402
from headstart.train.prompts import Prompt, PromptList  # noqa: E402
from headstart.train.text_shard import Document  # noqa: E402
from headstart.train.text_store import TextHeader, TextSource, TextStore  # noqa: E402

WORDS = ("one", "two", "three", "four", "five", "six", "seven")
PROMPTS = PromptList(tuple(Prompt(turns=(f"Say {word}.",)) for word in WORDS))
SMALL = GraftConfig(
    kind="medusa", depth=2, draft_vocab_size=100, text_tokens=900, window=48, epochs=1, checkpoints=2, threads=1
)
# what a run's folder holds of the training itself
OUTCOME = ("heads.safetensors", "state.safetensors")


pytestmark = pytest.mark.usefixtures("one_thread_and_no_pictures")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf")


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GraftResult]:
    """A run that nothing interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    result = graft(model, path, SMALL, PROMPTS)
    assert result is not None
    return path, result


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_speed(run: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "tokens_per_s"} for line in metrics(run)]


def step_of_state(run: Path) -> int:
    metadata, _ = read_safetensors_header(run / "state.safetensors")
    return int(json.loads(metadata["progress"])["step"])


def stop_at(phase: str, done: float) -> tuple[Callable[[Progress], None], Callable[[], bool]]:
    """Listeners that stop a run once a phase is so far."""
    reached = False

    def show(progress: Progress) -> None:
        nonlocal reached
        reached = reached or (progress.phase == phase and progress.done >= done)

    return show, lambda: reached


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
    config = replace(SMALL, kind=kind, text_tokens=None, **choices)
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
    config = replace(SMALL, text_tokens=None, checkpoints=3, learning_rate=0.02)
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
    assert all(np.isfinite(line["loss"]) and len(line["correct"]) == SMALL.depth for line in steps)
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
    assert recipe["text_tokens"] == result.text_tokens >= SMALL.text_tokens
    assert 0 < recipe["vocabulary_coverage"] <= 1
    assert recipe["distinct_8gram_share"] == result.distinct_8gram_share
    assert recipe["seed"] == SMALL.seed
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
        assert graft(model, tmp_path, SMALL, PROMPTS, show=show, should_stop=should_stop) is None
        if phase == "training":  # no step that was taken is taken again
            assert step_of_state(tmp_path) == done
    result = graft(model, tmp_path, SMALL, PROMPTS)
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
            graft(model, tmp_path, SMALL, PROMPTS, show=crash_at(phase, done))
    assert graft(model, tmp_path, SMALL, PROMPTS) is not None
    for name in OUTCOME:
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes(), name
    assert without_speed(tmp_path) == without_speed(run)


def test_a_finished_run_only_reports(model: Path, whole: tuple[Path, GraftResult], tmp_path: Path) -> None:
    run = shutil.copytree(whole[0], tmp_path / "run")
    shutil.rmtree(run / "taps")
    seen: list[Progress] = []
    result = graft(model, run, SMALL, PROMPTS, show=seen.append)
    assert result is not None
    assert not seen
    assert replace(result, heads=whole[1].heads, spent_s=0.0) == replace(whole[1], spent_s=0.0)
    assert result.spent_s == pytest.approx(whole[1].spent_s, abs=1.0)


def test_other_settings_are_refused_by_name(model: Path, whole: tuple[Path, GraftResult]) -> None:
    with pytest.raises(ConfigError, match=r"learning_rate was 0\.002 and is now 0\.001.*another folder"):
        graft(model, whole[0], replace(SMALL, learning_rate=1e-3), PROMPTS)
    with pytest.raises(ConfigError, match="prompts was"):
        graft(model, whole[0], SMALL, PromptList((Prompt(turns=("Hi",)), Prompt(turns=("Oh",)))))
    other = write_tiny_gguf(whole[0].parent / "other.gguf", seed=1)
    with pytest.raises(ConfigError, match="model was"):
        graft(other, whole[0], SMALL, PROMPTS)


def test_more_threads_are_no_other_run(model: Path, whole: tuple[Path, GraftResult]) -> None:
    assert graft(model, whole[0], replace(SMALL, threads=2), PROMPTS) is not None


def test_a_text_of_another_model_is_refused_by_name(whole: tuple[Path, GraftResult], tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=1)
    with pytest.raises(CheckpointError, match="written with another model"):
        graft(other, tmp_path / "run", SMALL, whole[0])
    with pytest.raises(ConfigError, match="holds no text"):
        graft(other, tmp_path / "run", SMALL, tmp_path / "nowhere")


def test_taps_of_another_run_are_taken_if_they_are_the_same(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    seen: list[Progress] = []
    graft(model, tmp_path / "same", replace(SMALL, kind="parallel"), whole[0], show=seen.append)
    assert {progress.phase for progress in seen} == {"training"}
    assert not (tmp_path / "same" / "taps").exists()
    before = (whole[0] / "taps" / "about.json").read_bytes()
    show, should_stop = stop_at("reading", 1)
    graft(model, tmp_path / "more", replace(SMALL, kind="eagle3"), whole[0], show=show, should_stop=should_stop)
    assert (tmp_path / "more" / "taps").exists()
    assert (whole[0] / "taps" / "about.json").read_bytes() == before


def test_a_text_that_is_still_being_written_is_not_taken(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    show, should_stop = stop_at("writing", 1)
    assert graft(model, tmp_path / "a", SMALL, PROMPTS, show=show, should_stop=should_stop) is None
    with pytest.raises(ConfigError, match="is still being written"):
        graft(model, tmp_path / "b", SMALL, tmp_path / "a")
    assert not (tmp_path / "b").exists()
    show, should_stop = stop_at("reading", 1)
    assert graft(model, tmp_path / "a", SMALL, PROMPTS, show=show, should_stop=should_stop) is None
    assert graft(model, tmp_path / "b", SMALL, tmp_path / "a") is not None


def test_shards_that_were_lost_are_written_again_and_no_part_of_a_text_is_taken_for_it(
    model: Path, tmp_path: Path
) -> None:
    longer = replace(SMALL, text_tokens=1800)
    assert graft(model, tmp_path / "whole", longer, PROMPTS) is not None
    for phase in ("reading", "training"):
        run = tmp_path / phase
        show, should_stop = stop_at(phase, 2)
        assert graft(model, run, longer, PROMPTS, show=show, should_stop=should_stop) is None
        shards = sorted((run / "text").glob("shard-*"))
        assert len(shards) > 2
        lost = [shard.read_bytes() for shard in shards[-2:]]
        for shard in shards[-2:]:
            shard.unlink()
        with pytest.raises(CheckpointError, match=r"shards at the end are missing.*take up the run that wrote it"):
            graft(model, tmp_path / f"{phase}-taken", longer, run)
        # it is written on to where it ended, even if that is stopped again, and is whole only then
        assert graft(model, run, longer, PROMPTS, should_stop=shards[-2].exists) is None
        assert shards[-2].exists()
        assert not shards[-1].exists()
        with pytest.raises(ConfigError, match="is still being written"):
            graft(model, tmp_path / f"{phase}-taken", longer, run)
        assert graft(model, run, longer, PROMPTS) is not None
        assert [shard.read_bytes() for shard in shards[-2:]] == lost
        for name in OUTCOME:
            assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
        # of a finished run as well
        shards[-1].unlink()
        assert graft(model, run, longer, PROMPTS) is not None
        assert shards[-1].read_bytes() == lost[-1]
        assert graft(model, tmp_path / f"{phase}-taken", longer, run) is not None


def test_a_text_that_ended_with_its_time_is_written_again_as_far_as_it_went(model: Path, tmp_path: Path) -> None:
    config = replace(SMALL, minutes=1e-6, text_tokens=None, epochs=None)
    show, should_stop = stop_at("training", 1)
    assert graft(model, tmp_path, config, PROMPTS, show=show, should_stop=should_stop) is None
    (shard,) = (tmp_path / "text").glob("shard-*")
    before = shard.read_bytes()
    shard.unlink()
    assert graft(model, tmp_path, config, PROMPTS) is not None
    assert list((tmp_path / "text").glob("shard-*")) == [shard]
    assert shard.read_bytes() == before


def test_taps_of_another_text_with_the_same_settings_are_not_taken(model: Path, tmp_path: Path) -> None:
    texts = [
        [document([1, 2, begin, first + step], [False, False, False, True]) for begin in range(3, 9) for step in (0, 1)]
        for first in (20, 40)
    ]
    runs = [text_run(model, tmp_path / name, text) for name, text in zip("ab", texts, strict=True)]
    for run in runs:
        assert graft(model, run / "out", SMALL, run) is not None
    # the taps of one text lie where those of the other would be looked for
    shutil.copytree(runs[0] / "out" / "taps", runs[1] / "taps")
    about = (runs[1] / "taps" / "about.json").read_bytes()
    assert graft(model, runs[1] / "again", SMALL, runs[1]) is not None
    assert (runs[1] / "taps" / "about.json").read_bytes() == about
    for name in OUTCOME:
        assert (runs[1] / "again" / name).read_bytes() == (runs[1] / "out" / name).read_bytes(), name


def document(tokens: list[int], supervised: list[bool]) -> Document:
    return Document(
        tokens=np.array(tokens, np.int32), supervised=np.array(supervised), temperature=0.0, seed=0, category="other"
    )


def text_run(model: Path, path: Path, documents: list[Document]) -> Path:
    """A folder with a text made by hand."""
    header = TextHeader(source=TextSource.of(open_checkpoint(model)), categories=("other",))
    TextStore.create(path / "text", header).append(documents)
    return path


def test_a_text_without_anything_to_learn_stops_the_run(model: Path, tmp_path: Path) -> None:
    silent = text_run(model, tmp_path / "silent", [document([1, 2, 3, number], [False] * 4) for number in range(8)])
    with pytest.raises(ConfigError, match="None of the 8 documents of the text has a supervised token"):
        graft(model, tmp_path / "run", SMALL, silent)


def test_a_text_of_one_prompt_stops_the_run(model: Path, tmp_path: Path) -> None:
    same = [document([1, 2, answer], [False, False, True]) for answer in range(8)]
    one = text_run(model, tmp_path / "one", same)
    with pytest.raises(ConfigError, match="8 documents of 1 different prompts"):
        graft(model, tmp_path / "run", SMALL, one)


def test_a_single_prompt_is_refused_before_a_text_is_written(model: Path, tmp_path: Path) -> None:
    one = Prompt(turns=("What is it?",))
    with pytest.raises(ConfigError, match="only one prompt"):
        graft(model, tmp_path / "run", SMALL, PromptList((one, replace(one, category="again"))))
    assert not (tmp_path / "run").exists()


def test_a_training_that_diverges_stops_and_leaves_the_heads_as_they_were(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    with pytest.raises(HeadstartError, match="the loss is"):
        graft(model, tmp_path, replace(SMALL, learning_rate=1e30), whole[0])
    assert open_heads(tmp_path / "heads.safetensors").header.recipe["step"] == 0
    assert all(np.isfinite(line["loss"]) for line in metrics(tmp_path) if line["kind"] == "step")


def test_minutes_count_over_resumptions_and_the_plan_stays(model: Path, tmp_path: Path) -> None:
    config = replace(SMALL, minutes=0.02, text_tokens=None, epochs=None)
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
    result = graft(model, tmp_path, replace(SMALL, minutes=600.0), whole[0])
    assert result is not None
    assert result.num_steps == whole[1].num_steps
    assert (tmp_path / "heads.safetensors").exists()


def test_time_that_is_spent_already_leaves_one_shard_and_one_step(model: Path, tmp_path: Path) -> None:
    result = graft(model, tmp_path, replace(SMALL, minutes=1e-6, text_tokens=None, epochs=None), PROMPTS)
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


def test_no_prompt_is_on_both_sides(whole: tuple[Path, GraftResult]) -> None:
    documents = list(TextStore.open(whole[0] / "text").documents())
    parts = hold_out(documents)
    begins = [tuple(text.tokens[: text.supervised.argmax()].tolist()) for text in documents]
    assert sorted((*parts.training, *parts.held_out)) == list(range(len(documents)))
    assert {begins[number] for number in parts.held_out} == set(parts.prompts)
    assert set(parts.prompts).isdisjoint(begins[number] for number in parts.training)
    # seven prompts, each many times
    assert (len(parts.prompts), len(set(begins))) == (1, 7)


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
        replace(SMALL, **changes)


def test_taps_that_the_model_lacks_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="read layer 7 of a trunk that has 2"):
        graft(model, tmp_path / "run", replace(SMALL, kind="eagle3", taps=(1, 7)), PROMPTS)
    assert not (tmp_path / "run").exists()
