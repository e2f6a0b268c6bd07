"""Engines for model files with heads: found, refused, and without effect on what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart import Engine, SamplingParams
from headstart.checkpoint import open_checkpoint
from headstart.checkpoint.heads_file import open_heads
from headstart.engine.heads_drafter import HeadsDrafter
from headstart.engine.loading import BEYOND_TRAINING, load_parts
from headstart.errors import CheckpointError, ConfigError
from headstart.runtime.open_heads import heads_place
from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf

PROMPTS = ["the rain in the north and the wind", "rain in the north and", "the rain in the north and the wind", "t"]
LAWS = (
    SamplingParams(max_tokens=40, ignore_eos=True),
    SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.7, seed=9, frequency_penalty=0.3),
)
LOADING = {"threads": 1, "cache_tokens": 512, "max_batch": 4}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf")


@pytest.fixture(scope="module")
def plain_texts(model: Path) -> list[list[tuple[int, ...]]]:
    engine = Engine.load(model, draft="none", **LOADING)
    return [[engine.generate(prompt, params).token_ids for prompt in PROMPTS] for params in LAWS]


@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
@pytest.mark.parametrize("name", ["eagle3", "sequential", "sequential, unrolled", "eagle", "medusa", "parallel"])
def test_heads_of_every_kind_change_nothing(model, tmp_path, plain_texts, name, reduced):
    heads = write_tiny_heads(tmp_path / "x.heads.safetensors", model, name, num_guessed=150 if reduced else 0)
    engine = Engine.load(model, draft=f"heads:{heads}", policy="always", **LOADING)
    for params, plain in zip(LAWS, plain_texts, strict=True):
        completions = engine.generate_many(PROMPTS, params)
        assert [completion.token_ids for completion in completions] == plain
        assert all(completion.drafted > 40 for completion in completions)
        assert {completion.drafter for completion in completions} == {"heads"}
    assert engine.statistics.drafter_faults == 0


def test_an_unrolled_module_goes_twice_as_deep_as_it_was_trained(model, tmp_path):
    heads = write_tiny_heads(tmp_path / "x.heads.safetensors", model, "sequential, unrolled")
    trained = open_heads(heads).header.heads["depth"]
    (drafter,) = load_parts(model, draft=f"heads:{heads}", threads=1).make_drafters()
    assert isinstance(drafter, HeadsDrafter)
    assert drafter.max_depth == BEYOND_TRAINING * trained == 6


def test_small_caches_and_small_chunks_change_nothing(model, tmp_path, plain_texts):
    heads = write_tiny_heads(tmp_path / "x.heads.safetensors", model, num_guessed=150)
    sizes = {**LOADING, "cache_tokens": 112, "prefill_chunk": 5}
    engine = Engine.load(model, draft=f"heads:{heads}", policy="always", **sizes)
    for params, plain in zip(LAWS, plain_texts, strict=True):
        completions = engine.generate_many([*PROMPTS, *PROMPTS], params)
        assert [completion.token_ids for completion in completions] == [*plain, *plain]
    assert engine.statistics.preemptions > 0
    assert engine.statistics.drafter_faults == 0


def test_auto_is_lookup_and_heads_if_there_are_any(tmp_path):
    model = write_tiny_gguf(tmp_path / "model.gguf")
    assert [drafter.name for drafter in load_parts(model, draft="auto", threads=1).make_drafters()] == ["lookup"]
    with pytest.raises(ConfigError, match=r"neither .*model\.heads\.safetensors, nor any .*auto"):
        load_parts(model, draft="heads")
    write_tiny_heads(heads_place(open_checkpoint(model)), model)
    names = {
        draft: [drafter.name for drafter in load_parts(model, draft=draft, threads=1).make_drafters()]
        for draft in ("auto", "heads", "lookup", "none")
    }
    assert names == {"auto": ["lookup", "heads"], "heads": ["heads"], "lookup": ["lookup"], "none": []}
    engine = Engine.load(model, **LOADING)
    assert engine.generate("abcabc", LAWS[0]).drafter == "lookup+heads"


def test_heads_that_are_not_there_or_of_another_model_are_refused(model, tmp_path):
    with pytest.raises(ConfigError, match="names no file"):
        load_parts(model, draft="heads:")
    with pytest.raises(CheckpointError, match="nowhere"):
        load_parts(model, draft="heads:/nowhere/x.heads.safetensors")
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=1)
    heads = write_tiny_heads(tmp_path / "x.heads.safetensors", other)
    with pytest.raises(CheckpointError, match="do not fit"):
        load_parts(model, draft=f"heads:{heads}")
    with pytest.raises(ConfigError, match="heads:FILE"):
        load_parts(model, draft="haeds")
