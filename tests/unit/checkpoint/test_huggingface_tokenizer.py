"""Tokenizers out of a folder's tokenizer.json and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from headstart.checkpoint import Tokenizer, open_checkpoint
from headstart.errors import CheckpointError, ConfigError, UnsupportedError

Build = Callable[..., Tokenizer]
CHAT = "{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}"


@pytest.fixture
def backend() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, "he", "<pad>"])}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("h", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in ("<s>", "</s>", "<turn>")])
    return made


@pytest.fixture
def build(tmp_path: Path, backend: tokenizers.Tokenizer) -> Build:
    """Writes a folder and opens its tokenizer."""

    def builder(
        settings: dict[str, Any] | None = None,
        generation: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        **files: str,
    ) -> Tokenizer:
        save_file({"w": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
        backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "config.json").write_text(json.dumps(config or {}))
        if settings is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return open_checkpoint(tmp_path).tokenizer()

    return builder


def test_text_survives(build: Build) -> None:
    tokenizer = build()
    assert tokenizer.decode(tokenizer.encode("he<s>größe 🤗"), skip_special_tokens=False) == "he<s>größe 🤗"
    assert tokenizer.vocab_size == 256 + 2 + 3
    assert tokenizer.bos_id is None
    assert tokenizer.end_ids == ()


def test_ids_beyond_the_vocabulary_are_nothing(build: Build) -> None:
    tokenizer = build()
    assert tokenizer.decode([tokenizer.vocab_size, 100_000]) == ""


def test_named_tokens_may_be_spelled_out(build: Build) -> None:
    tokenizer = build({"bos_token": {"content": "<s>", "special": True}, "eos_token": "</s>", "pad_token": "<pad>"})
    assert tokenizer.bos_id == tokenizer.token_id("<s>")
    assert tokenizer.end_ids == (tokenizer.token_id("</s>"),)
    assert tokenizer.is_special(tokenizer.token_id("<pad>"))  # type: ignore[arg-type]
    assert tokenizer.encode("<pad>") == [tokenizer.token_id("<pad>")]


def test_names_that_are_no_tokens_get_no_ids(build: Build) -> None:
    tokenizer = build({"pad_token": "[PAD]"})
    assert tokenizer.token_id("[PAD]") is None
    assert len(tokenizer.encode("[PAD]")) == 5


def test_older_folders_name_tokens_in_a_file_of_their_own(build: Build) -> None:
    assert build(special_tokens_map__json='{"bos_token": "<s>"}').bos_id is not None


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        ({"eos_token_id": [7, 3]}, {"eos_token_id": 9}, (7, 3)),
        ({"eos_token_id": 7}, {}, (7,)),
        ({"eos_token_id": [-1, 7, None]}, {}, (7,)),
        ({}, {"eos_token_id": 9}, (9,)),
        (None, {"eos_token_id": None}, ()),
    ],
)
def test_end_tokens(build: Build, generation: dict[str, Any], config: dict[str, Any], ends: tuple[int, ...]) -> None:
    tokenizer = build({"eos_token": "</s>"}, generation, config)
    assert tokenizer.end_ids == (tokenizer.token_id("</s>"), *ends)


def test_tokenizer_json_says_what_goes_around_a_text(build: Build, backend: tokenizers.Tokenizer) -> None:
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 258)])
    tokenizer = build({"bos_token": "<s>"})
    assert tokenizer.encode("he") == [258, tokenizer.token_id("he")]
    assert tokenizer.encode("he", add_special_tokens=False) == [tokenizer.token_id("he")]


@pytest.mark.parametrize(("adds_bos", "adds_eos"), [(True, False), (False, True), (True, True), (False, False)])
def test_flags_go_before_it(build: Build, backend: tokenizers.Tokenizer, adds_bos: bool, adds_eos: bool) -> None:
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 258)])
    flags = {"add_bos_token": adds_bos, "add_eos_token": adds_eos}
    ids = build({"bos_token": "<s>", "eos_token": "</s>", **flags}).encode("he")
    assert ids == [258] * adds_bos + [256] + [259] * adds_eos


def test_settings_of_a_training_run_do_not_cut_text(build: Build, backend: tokenizers.Tokenizer) -> None:
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert len(build().encode("xyz")) == 3


def test_chat_begins_once(build: Build, backend: tokenizers.Tokenizer) -> None:
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 258)])
    tokenizer = build({"bos_token": "<s>", "chat_template": CHAT})
    assert tokenizer.render_chat([{"role": "user", "content": "he"}]) == "<s>he"
    assert tokenizer.encode_chat([{"role": "user", "content": "he"}]) == [258, 256]


def test_templates_have_names(build: Build) -> None:
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools[0].name }}"}]
    tokenizer = build({"chat_template": templates})
    messages = [{"role": "user", "content": "x"}]
    assert tokenizer.chat_template == "plain"
    assert tokenizer.render_chat(messages) == "plain"
    assert tokenizer.render_chat(messages, tools=[{"name": "search"}]) == "search"


def test_a_template_file_goes_first(build: Build) -> None:
    assert build({"chat_template": "old"}, chat_template__jinja="new").chat_template == "new"


def test_variables_reach_the_template(build: Build) -> None:
    tokenizer = build({"chat_template": "{{ enable_thinking }}{{ add_generation_prompt }}"})
    messages = [{"role": "user", "content": "x"}]
    assert tokenizer.render_chat(messages, add_generation_prompt=False, enable_thinking="deep") == "deepFalse"


def test_no_template_is_said_so(build: Build) -> None:
    tokenizer = build()
    assert tokenizer.chat_template is None
    with pytest.raises(UnsupportedError, match="no default chat template"):
        tokenizer.render_chat([{"role": "user", "content": "x"}])


def test_malformed_messages_are_refused(build: Build) -> None:
    with pytest.raises(ConfigError, match="role None"):
        build({"chat_template": CHAT}).encode_chat([{"content": "x"}])


def test_a_missing_tokenizer(build: Build, tmp_path: Path) -> None:
    build()
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: the file is missing"):
        open_checkpoint(tmp_path).tokenizer()
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(UnsupportedError, match=r"no tokenizer\.json\. Write one with transformers"):
        open_checkpoint(tmp_path).tokenizer()


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"model": {"type": "NoSuch"}}', '{"version": "1.0", "model": null}']
)
def test_a_damaged_tokenizer(build: Build, tmp_path: Path, text: str) -> None:
    build()
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match="no valid tokenizer"):
        open_checkpoint(tmp_path).tokenizer()


def test_a_fault_that_shows_in_use_only(build: Build, backend: tokenizers.Tokenizer, tmp_path: Path) -> None:
    build()
    stored = json.loads(backend.to_str())
    stored["model"] |= {"unk_token": "no token", "vocab": {"a": 0}, "merges": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(stored | {"pre_tokenizer": None, "added_tokens": []}))
    with pytest.raises(CheckpointError, match="no valid tokenizer"):
        open_checkpoint(tmp_path).tokenizer()


@pytest.mark.parametrize("decoder", [decoders.WordPiece(), decoders.CTC(), None])
def test_other_vocabularies_are_refused(build: Build, backend: tokenizers.Tokenizer, decoder: Any) -> None:
    backend.decoder = decoder
    with pytest.raises(UnsupportedError, match="decoder is"):
        build()


def test_metaspace_vocabularies(build: Build, backend: tokenizers.Tokenizer) -> None:
    backend.model = models.BPE(vocab={"▁": 0, "h": 1, "▁h": 2, "e": 3}, merges=[("▁", "h")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = build()
    assert tokenizer.encode("h he") == [2, 2, 3]
    assert tokenizer.decode([2, 2, 3]) == "h he"
