"""The text of a graft and what is read of it: taken from another run, lost, written again, refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.errors import CheckpointError, ConfigError  # noqa: E402
from headstart.testing.graft_runs import OUTCOME, PROMPTS, SMALL_GRAFT, stop_at  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.graft import GraftResult, graft  # noqa: E402
from headstart.train.holdout import hold_out  # noqa: E402
from headstart.train.phases import Progress  # noqa: E402
from headstart.train.prompts import Prompt, PromptList  # noqa: E402
from headstart.train.text_shard import Document  # noqa: E402
from headstart.train.text_store import TextHeader, TextSource, TextStore  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_and_no_pictures")


def test_a_text_of_another_model_is_refused_by_name(whole: tuple[Path, GraftResult], tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=1)
    with pytest.raises(CheckpointError, match="written with another model"):
        graft(other, tmp_path / "run", SMALL_GRAFT, whole[0])
    with pytest.raises(ConfigError, match="holds no text"):
        graft(other, tmp_path / "run", SMALL_GRAFT, tmp_path / "nowhere")


def test_taps_of_another_run_are_taken_if_they_are_the_same(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    seen: list[Progress] = []
    graft(model, tmp_path / "same", replace(SMALL_GRAFT, kind="parallel"), whole[0], show=seen.append)
    assert {progress.phase for progress in seen} == {"training"}
    assert not (tmp_path / "same" / "taps").exists()
    before = (whole[0] / "taps" / "about.json").read_bytes()
    show, should_stop = stop_at("reading", 1)
    graft(model, tmp_path / "more", replace(SMALL_GRAFT, kind="eagle3"), whole[0], show=show, should_stop=should_stop)
    assert (tmp_path / "more" / "taps").exists()
    assert (whole[0] / "taps" / "about.json").read_bytes() == before


def test_a_text_that_is_still_being_written_is_not_taken(
    model: Path, whole: tuple[Path, GraftResult], tmp_path: Path
) -> None:
    show, should_stop = stop_at("writing", 1)
    assert graft(model, tmp_path / "a", SMALL_GRAFT, PROMPTS, show=show, should_stop=should_stop) is None
    with pytest.raises(ConfigError, match="is still being written"):
        graft(model, tmp_path / "b", SMALL_GRAFT, tmp_path / "a")
    assert not (tmp_path / "b").exists()
    show, should_stop = stop_at("reading", 1)
    assert graft(model, tmp_path / "a", SMALL_GRAFT, PROMPTS, show=show, should_stop=should_stop) is None
    assert graft(model, tmp_path / "b", SMALL_GRAFT, tmp_path / "a") is not None


def test_shards_that_were_lost_are_written_again_and_no_part_of_a_text_is_taken_for_it(
    model: Path, tmp_path: Path
) -> None:
    longer = replace(SMALL_GRAFT, text_tokens=1800)
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
    config = replace(SMALL_GRAFT, minutes=1e-6, text_tokens=None, epochs=None)
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
        assert graft(model, run / "out", SMALL_GRAFT, run) is not None
    # the taps of one text lie where those of the other would be looked for
    shutil.copytree(runs[0] / "out" / "taps", runs[1] / "taps")
    about = (runs[1] / "taps" / "about.json").read_bytes()
    assert graft(model, runs[1] / "again", SMALL_GRAFT, runs[1]) is not None
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
        graft(model, tmp_path / "run", SMALL_GRAFT, silent)


def test_a_text_of_one_prompt_stops_the_run(model: Path, tmp_path: Path) -> None:
    same = [document([1, 2, answer], [False, False, True]) for answer in range(8)]
    one = text_run(model, tmp_path / "one", same)
    with pytest.raises(ConfigError, match="8 documents of 1 different prompts"):
        graft(model, tmp_path / "run", SMALL_GRAFT, one)


def test_a_single_prompt_is_refused_before_a_text_is_written(model: Path, tmp_path: Path) -> None:
    one = Prompt(turns=("What is it?",))
    with pytest.raises(ConfigError, match="only one prompt"):
        graft(model, tmp_path / "run", SMALL_GRAFT, PromptList((one, replace(one, category="again"))))
    assert not (tmp_path / "run").exists()


def test_no_prompt_is_on_both_sides(whole: tuple[Path, GraftResult]) -> None:
    documents = list(TextStore.open(whole[0] / "text").documents())
    parts = hold_out(documents)
    begins = [tuple(text.tokens[: text.supervised.argmax()].tolist()) for text in documents]
    assert sorted((*parts.training, *parts.held_out)) == list(range(len(documents)))
    assert {begins[number] for number in parts.held_out} == set(parts.prompts)
    assert set(parts.prompts).isdisjoint(begins[number] for number in parts.training)
    # seven prompts, each many times
    assert (len(parts.prompts), len(set(begins))) == (1, 7)
