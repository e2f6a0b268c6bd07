"""Engines for model files, with another file to draft."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart import Engine, SamplingParams
from headstart.checkpoint import open_checkpoint
from headstart.decoding.drafter import DraftRequest
from headstart.engine.draft_state import DraftState
from headstart.engine.loading import load_parts
from headstart.errors import CheckpointError, ConfigError, UnsupportedError
from headstart.testing.tiny_models import write_tiny_gguf

PROMPT = "the rain in the north and the wind"
LAWS = (
    SamplingParams(max_tokens=40, ignore_eos=True),
    SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.7, seed=9, frequency_penalty=0.3),
)
LOADING = {"threads": 1, "cache_tokens": 512, "max_batch": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", kind="F16", num_layers=3)


def test_a_model_that_drafts_for_itself_is_always_right(model):
    plain = Engine.load(model, draft="none", **LOADING)
    drafted = Engine.load(model, draft=f"model:{model}", policy="always", max_nodes=4, **LOADING)
    for params in LAWS:
        completion = drafted.generate(PROMPT, params)
        assert completion.token_ids == plain.generate(PROMPT, params).token_ids
        assert completion.accepted == completion.drafted > 0
        assert completion.drafter == "model"
    assert drafted.statistics.draft_s > 0


def test_an_engines_drafting_model_has_read_nothing_before_and_keeps_prompts_as_the_engine_does(model):
    """Else a prompt that comes again would be cheaper to draft for than one that comes."""
    parts = load_parts(model, draft=f"model:{model}", threads=1)
    prompt = parts.tokenizer.encode(PROMPT) * 3
    for share_prefixes, num_met in ((True, (len(prompt) - 1) // 16 * 16), (False, 0)):
        for _ in range(2):
            (drafter,) = parts.make_drafters(max_batch=2, cache_tokens=512, share_prefixes=share_prefixes)
            met = []
            for _ in range(2):
                state = drafter.open(prompt, LAWS[0], 0)
                assert isinstance(state, DraftState)
                drafter.propose([DraftRequest(state=state, max_nodes=2, max_depth=2)])
                assert state.pages is not None
                met.append(state.pages.num_shared)
                drafter.close(state)
            assert met == [0, num_met]


def test_another_model_changes_nothing(model, tmp_path):
    other = write_tiny_gguf(tmp_path / "other.gguf", kind="F16", seed=1, num_layers=1)
    plain = Engine.load(model, draft="none", **LOADING)
    drafted = Engine.load(model, draft=f"model:{other}", policy="always", **LOADING)
    for params in LAWS:
        texts = [engine.generate_many([PROMPT, PROMPT[4:]], params) for engine in (plain, drafted)]
        assert [text.token_ids for text in texts[0]] == [text.token_ids for text in texts[1]]
        assert sum(text.drafted for text in texts[1]) > sum(text.accepted for text in texts[1])


def test_another_vocabulary_is_refused(model, tmp_path):
    tokens = [open_checkpoint(model).tokenizer().token_bytes(token_id) for token_id in (297, 298)]
    assert tokens == [b"<|endoftext|>", b"<|im_start|>"]
    spelled = list(open_checkpoint(model).metadata["tokenizer.ggml.tokens"])
    spelled[298] = "<|other|>"
    other = write_tiny_gguf(tmp_path / "other.gguf", metadata={"tokenizer.ggml.tokens": spelled})
    with pytest.raises(UnsupportedError, match=r"token id 298 is '<\|im_start\|>' in the model and '<\|other\|>'"):
        Engine.load(model, draft=f"model:{other}", **LOADING)


def test_a_drafter_that_is_not_there_is_refused(model):
    with pytest.raises(ConfigError, match="names no model"):
        Engine.load(model, draft="model:")
    with pytest.raises(CheckpointError):
        Engine.load(model, draft="model:/nowhere/model.gguf")
    with pytest.raises(ConfigError, match="model:PATH"):
        Engine.load(model, draft="modle")
