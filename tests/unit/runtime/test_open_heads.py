"""Heads and the trunk they are opened for: who fits, who is refused, and what is found where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from headstart.architectures.decoder import decoder_program
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.names import stored_name
from headstart.architectures.reading import read_config
from headstart.architectures.weights import wanted_shapes
from headstart.checkpoint import Checkpoint, Tensor, open_checkpoint
from headstart.checkpoint.bfloat16 import round_to_bfloat16
from headstart.checkpoint.heads_file import HeadsHeader, write_heads
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.errors import CheckpointError
from headstart.runtime.open_heads import find_heads, heads_place, identify_trunk, open_fitting_heads
from headstart.testing.gguf_writer import write_gguf
from headstart.testing.tiny_models import VOCAB_SIZE, write_tiny_gguf

SIZES: dict[str, Any] = {"hidden_stage": "pre_norm", "intermediate_size": 96}
CONFIGS = (
    HeadsConfig(kind="sequential", depth=3, taps=(2,), **SIZES),
    HeadsConfig(kind="eagle", depth=2, taps=(2,), hidden_stage="post_norm", intermediate_size=96),
    HeadsConfig(kind="eagle3", depth=2, taps=(0, 1, 2), draft_vocab_size=40, own_unembedding=True, **SIZES),
    HeadsConfig(kind="medusa", depth=2, num_modules=2, taps=(2,), **SIZES),
    HeadsConfig(kind="parallel", depth=2, num_modules=2, taps=(1,), draft_vocab_size=8, **SIZES),
)
EAGLE3 = CONFIGS[2]

Floats = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def own_weights(config: HeadsConfig, checkpoint: Checkpoint) -> Floats:
    random = np.random.default_rng(3)
    stages = heads_program(config, read_config(checkpoint)[1]).stages
    shapes = {name: shape for stage in stages for name, shape in wanted_shapes(stage.program).items()}
    return {
        name: random.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in shapes.items()
        if not name.startswith("trunk.")
    }


def make_heads(
    path: Path,
    checkpoint: Checkpoint,
    config: HeadsConfig = EAGLE3,
    *,
    weights: Mapping[str, Any] | None = None,
    vocabulary: int | None = None,
    described: Mapping[str, Any] | None = None,
    **trunk: Any,
) -> Path:
    """Write heads for a trunk, with what a test wants to be otherwise."""
    header = HeadsHeader(
        heads={**config.to_json(), **(described or {})}, trunk=replace(identify_trunk(checkpoint), **trunk)
    )
    size = config.draft_vocab_size if vocabulary is None else vocabulary
    ids = np.arange(size, dtype=np.int32) * 2 + 1 if size else None
    write_heads(path, header, own_weights(config, checkpoint) if weights is None else weights, ids)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(write_tiny_gguf(tmp_path / "tiny.Q8_0.gguf"))


# ---- heads that fit ---------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_heads_of_every_kind_open_for_their_trunk(tmp_path: Path, model: Checkpoint, config: HeadsConfig) -> None:
    fitted = open_fitting_heads(make_heads(tmp_path / "x", model, config), model)
    assert fitted.config == config
    assert fitted.notes == ()
    assert fitted.file.shapes.keys() == own_weights(config, model).keys()


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q4_0"])
def test_another_quantisation_of_the_trunk_passes_with_a_note(tmp_path: Path, model: Checkpoint, kind: str) -> None:
    path = make_heads(tmp_path / "x", model)
    sibling = open_checkpoint(write_tiny_gguf(tmp_path / "sibling.gguf", kind=kind))
    (note,) = open_fitting_heads(path, sibling).notes
    assert model.digest() in note
    assert sibling.digest() in note
    assert "another quantisation" in note


def test_another_chat_template_passes_with_a_note(tmp_path: Path, model: Checkpoint) -> None:
    path = make_heads(tmp_path / "x", model)
    template = {"tokenizer.chat_template": "{{ messages[0]['content'] }}"}
    sibling = open_checkpoint(write_tiny_gguf(tmp_path / "sibling.gguf", metadata=template))
    (note,) = open_fitting_heads(path, sibling).notes
    assert "another chat template" in note


def as_folder(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """The model of a GGUF file as a Hugging Face folder in bf16, with a tokenizer that other code made."""
    folder.mkdir()
    _, config = read_config(checkpoint)
    tensors: list[Tensor] = []
    for name in wanted_shapes(decoder_program(config)):
        values = checkpoint.tensors[stored_name(name, "gguf")].dequantize()
        data = round_to_bfloat16(values).reshape(-1).view(np.uint8)
        tensors.append(Tensor(stored_name(name, "huggingface"), values.shape, "BF16", data))
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    settings = {
        "model_type": "llama",
        "_name_or_path": "/home/someone/tiny",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_context,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    spelled: Any = checkpoint.metadata["tokenizer.ggml.tokens"]
    merges: Any = checkpoint.metadata["tokenizer.ggml.merges"]
    vocabulary = {token: token_id for token_id, token in enumerate(spelled)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=pairs))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in spelled[-3:]])
    backend.save(str(folder / "tokenizer.json"))
    return open_checkpoint(folder)


def test_the_other_file_format_is_the_same_trunk(tmp_path: Path, model: Checkpoint) -> None:
    sibling = as_folder(model, tmp_path / "folder")
    assert identify_trunk(sibling).name == "tiny"
    assert identify_trunk(model).mismatches(identify_trunk(sibling)) == ()


def test_a_vocabulary_that_is_filled_up_is_the_same(tmp_path: Path) -> None:
    """Rows of the embedding without a token: some files list them, some do not."""

    def digest_with(*more: str) -> str:
        plain = open_checkpoint(write_tiny_gguf(tmp_path / "plain.gguf"))
        metadata = {key: list(value) if isinstance(value, tuple) else value for key, value in plain.metadata.items()}
        types: Any = metadata["tokenizer.ggml.token_type"]
        metadata["tokenizer.ggml.tokens"] = [*plain.metadata["tokenizer.ggml.tokens"], *more]  # type: ignore[misc]
        metadata["tokenizer.ggml.token_type"] = np.concatenate([types, np.full(len(more), 5, np.int32)])
        write_gguf(tmp_path / "filled.gguf", metadata, plain.tensors.values())
        return identify_trunk(open_checkpoint(tmp_path / "filled.gguf")).vocabulary_digest

    assert digest_with(f"[PAD{VOCAB_SIZE}]", f"[PAD{VOCAB_SIZE + 1}]") == digest_with()
    assert digest_with("[PAD7]") != digest_with()


# ---- heads that do not fit --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("otherwise", "words"),
    [
        ({"vocab_size": 301}, r"vocabulary size 301 \(this model: 300\)"),
        ({"hidden_size": 128}, r"hidden size 128 \(this model: 64\)"),
        ({"num_layers": 9}, r"number of layers 9 \(this model: 2\)"),
        ({"vocabulary_digest": "0" * 32}, r"tokenizer \(digest\) 0{32} \(this model: [0-9a-f]{32}\)"),
        ({"norms_digest": "0" * 32}, r"weights \(digest of the norms\) 0{32} \(this model: [0-9a-f]{32}\)"),
    ],
)
def test_each_thing_that_decides_is_refused_by_name(
    tmp_path: Path, model: Checkpoint, otherwise: dict[str, Any], words: str
) -> None:
    path = make_heads(tmp_path / "x", model, name="Other", **otherwise)
    with pytest.raises(
        CheckpointError, match=f"the heads were trained for Other; this model is tiny.*{words}"
    ) as caught:
        open_fitting_heads(path, model)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("otherwise", [{"seed": 1}, {"num_layers": 3}, {"family": "qwen3"}])
def test_another_model_is_refused(tmp_path: Path, model: Checkpoint, otherwise: dict[str, Any]) -> None:
    path = make_heads(tmp_path / "x", model)
    other = open_checkpoint(write_tiny_gguf(tmp_path / "other.gguf", **otherwise))
    with pytest.raises(CheckpointError, match=r"do not fit: .*digest of the norms"):
        open_fitting_heads(path, other)


def test_another_vocabulary_of_one_size_is_refused(tmp_path: Path, model: Checkpoint) -> None:
    path = make_heads(tmp_path / "x", model)
    tokens: Any = list(model.metadata["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    tokens[0], tokens[1] = tokens[1], tokens[0]
    other = open_checkpoint(write_tiny_gguf(tmp_path / "o.gguf", metadata={"tokenizer.ggml.tokens": tokens}))
    with pytest.raises(CheckpointError, match="tokenizer"):
        open_fitting_heads(path, other)


# ---- files that are not what they say ---------------------------------------------------------


def test_what_is_missing_surplus_or_misshapen_is_named(tmp_path: Path, model: Checkpoint) -> None:
    whole = own_weights(EAGLE3, model)
    cases: dict[str, Floats] = {
        "lack weights that their description asks for: fuse": {
            name: values for name, values in whole.items() if name != "fuse"
        },
        "no place in their description: extra": {**whole, "extra": np.ones(3, np.float32)},
        r"'fuse' has shape \[64, 32\]; .* asks for \[64, 192\]": {**whole, "fuse": np.ones((64, 32), np.float32)},
    }
    for message, weights in cases.items():
        path = make_heads(tmp_path / "x", model, weights=weights)
        with pytest.raises(CheckpointError, match=message):
            open_fitting_heads(path, model)


@pytest.mark.parametrize(("config", "size"), [(EAGLE3, 0), (EAGLE3, 39), (CONFIGS[0], 5)])
def test_a_reduced_vocabulary_and_its_map_belong_together(
    tmp_path: Path, model: Checkpoint, config: HeadsConfig, size: int
) -> None:
    path = make_heads(tmp_path / "x", model, config, vocabulary=size)
    with pytest.raises(CheckpointError, match=rf"among {config.draft_vocab_size or 'all'} .* of {size or 'none'}"):
        open_fitting_heads(path, model)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"kind": "hydra"}, "kind = 'hydra'"),
        ({"taps": [0, 1, 7]}, "read layer 7 of a trunk that has 2"),
        ({"colour": 1}, "colour"),
        ({"intermediate_size": 33}, "intermediate size is 33"),
    ],
)
def test_a_description_that_means_nothing_is_refused(
    tmp_path: Path, model: Checkpoint, described: dict[str, Any], message: str
) -> None:
    path = make_heads(tmp_path / "x", model, described=described)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_fitting_heads(path, model)
    assert str(path) in str(caught.value)


# ---- finding heads ----------------------------------------------------------------------------


def found_at(model: Checkpoint, **folders: Path) -> Path:
    found = find_heads(model, **folders)
    assert found is not None
    return found.file.path


def test_heads_beside_a_file(tmp_path: Path, model: Checkpoint) -> None:
    assert find_heads(model, shipped=tmp_path / "none") is None
    path = make_heads(tmp_path / "tiny.Q8_0.heads.safetensors", model)
    assert heads_place(model) == path
    assert found_at(model, shipped=tmp_path / "none") == path


@pytest.mark.parametrize("weights_name", ["model.safetensors", "weights.safetensors"])
def test_heads_in_a_folder_are_no_part_of_the_model(tmp_path: Path, model: Checkpoint, weights_name: str) -> None:
    folder = tmp_path / "folder"
    checkpoint = as_folder(model, folder)
    (folder / "model.safetensors").rename(folder / weights_name)
    path = make_heads(folder / "heads.safetensors", checkpoint)
    again = open_checkpoint(folder)
    assert again.tensors.keys() == checkpoint.tensors.keys()
    assert found_at(again) == path


def test_heads_do_not_make_a_folder_with_a_gguf_file_another_model(tmp_path: Path, model: Checkpoint) -> None:
    (tmp_path / "config.json").write_text("{}")  # repositories of GGUF files often have one
    make_heads(heads_place(model), model)
    assert open_checkpoint(tmp_path).path == model.path


def test_heads_beside_the_model_must_fit(tmp_path: Path, model: Checkpoint) -> None:
    make_heads(heads_place(model), model, norms_digest="0" * 32)
    with pytest.raises(CheckpointError, match="do not fit"):
        find_heads(model, shipped=tmp_path / "none")


def test_of_shipped_heads_the_first_that_fits(tmp_path: Path, model: Checkpoint) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    make_heads(shipped / "a.heads.safetensors", model, norms_digest="0" * 32)
    assert find_heads(model, shipped=shipped) is None
    fitting = make_heads(shipped / "b.heads.safetensors", model)
    make_heads(shipped / "c.heads.safetensors", model)
    assert found_at(model, shipped=shipped) == fitting
    beside = make_heads(heads_place(model), model)
    assert found_at(model, shipped=shipped) == beside
