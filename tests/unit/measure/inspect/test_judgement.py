"""Both conditions: there are heads, and an engine uses them; and how it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headstart.measure.inspect import Report
from headstart.measure.inspect.engines import ENGINES
from headstart.measure.inspect.families import BY_NAME, FAMILIES
from headstart.measure.inspect.judgement import EngineVerdict
from headstart.measure.inspect.layouts import LAYOUTS

Inspect = Callable[..., Report]

EMBEDDING = {"model.embed_tokens.weight": (64, 16)}
MODULE = {
    "eh_proj.weight": (16, 32), "enorm.weight": (16,), "hnorm.weight": (16,), "shared_head.norm.weight": (16,),
    "self_attn.q_proj.weight": (16, 16), "self_attn.k_proj.weight": (8, 16), "self_attn.v_proj.weight": (8, 16),
    "mlp.down_proj.weight": (16, 64),
}  # fmt: skip
CONFIG = {"model_type": "glm4_moe", "hidden_size": 16, "num_hidden_layers": 4, "num_nextn_predict_layers": 1}


def module(index: int) -> dict[str, tuple[int, ...]]:
    return {f"model.layers.{index}.{name}": shape for name, shape in MODULE.items()}


def engines_of(report: Report) -> Mapping[str, EngineVerdict]:
    return {engine.name: engine for engine in report.engines}


def test_flags_are_arguments_with_as_many_tokens_as_there_are_modules(inspect_files: Inspect) -> None:
    config = CONFIG | {"num_nextn_predict_layers": 2}
    engines = engines_of(inspect_files(config, EMBEDDING | module(4) | module(5)))
    flag, value = engines["vllm"].flags
    assert flag == "--speculative-config"
    assert json.loads(value) == {"method": "mtp", "num_speculative_tokens": 2}
    assert engines["sglang"].flags == ("--speculative-algorithm", "EAGLE")
    assert "max_draft_len: 2" in engines["tensorrt-llm"].flags[1]


def test_a_drafters_flags_name_its_method_and_its_files(inspect_files: Inspect) -> None:
    report = inspect_files(
        {"architectures": ["MedusaModel"], "model_type": "medusa", "num_heads": 2},
        {"blocks.0.layers.0.weight": (16, 16), "blocks.1.layers.0.weight": (16, 16)},
    )
    value = json.loads(engines_of(report)["vllm"].flags[1])
    assert value == {"method": "medusa", "model": report.model, "num_speculative_tokens": 2}


def test_llama_cpp_takes_them_after_a_conversion(inspect_files: Inspect) -> None:
    engine = engines_of(inspect_files(CONFIG, EMBEDDING | module(4)))["llama.cpp"]
    assert (engine.supported, engine.after_conversion, engine.implements) == (False, True, True)
    assert "--no-mtp" in engine.why
    assert engine.flags


def test_an_engine_may_know_heads_that_are_not_there(inspect_files: Inspect) -> None:
    report = inspect_files(CONFIG, EMBEDDING)
    vllm = engines_of(report)["vllm"]
    assert (vllm.implements, vllm.supported, vllm.flags) == (True, False, ())
    assert "promise" in vllm.why
    assert "promise heads" in report.verdict
    assert report.drops == ()


def test_heads_may_be_there_that_no_engine_knows(inspect_files: Inspect) -> None:
    report = inspect_files(CONFIG | {"model_type": "homegrown"}, EMBEDDING | module(4))
    assert report.native_heads.present == 1
    assert not any(engine.supported for engine in report.engines)
    assert "no known engine uses them" in report.verdict


def test_the_verdict_names_who_uses_them(inspect_files: Inspect) -> None:
    verdict = inspect_files(CONFIG, EMBEDDING | module(4)).verdict
    assert "vLLM, SGLang, TensorRT-LLM and transformers can use them" in verdict
    assert "llama.cpp after a conversion" in verdict


def test_several_modules_of_which_an_engine_loads_one(inspect_files: Inspect) -> None:
    names = {
        f"model.mtp.layers.{index}.{name}": shape
        for index in range(3)
        for name, shape in (MODULE | {"final_layernorm.weight": (16,)}).items()
    }
    report = inspect_files({"architectures": ["MiMoV2ForCausalLM"], "num_hidden_layers": 4}, EMBEDDING | names)
    assert any("loads the first alone" in drop for drop in report.drops)


@pytest.mark.parametrize("nested", [False, True])
def test_a_count_may_stand_in_the_text_models_settings(nested: bool, inspect_files: Inspect) -> None:
    config: dict[str, Any] = {"text_config": CONFIG} if nested else CONFIG
    wrapped = {f"language_model.{name}": shape for name, shape in (EMBEDDING | module(4)).items()}
    report = inspect_files(config, wrapped if nested else EMBEDDING | module(4))
    assert (report.family, report.native_heads.agrees) == ("glm4_moe", True)


def test_a_joint_projection_alone_makes_no_drafter(inspect_files: Inspect) -> None:
    layer = {f"layers.0.{name}": shape for name, shape in MODULE.items() if "." in name and "head" not in name}
    drafter = {"fc.weight": (16, 32), **layer}
    assert inspect_files({}, drafter).family == "eagle"
    with_norm = drafter | {"layers.0.input_layernorm.weight": (16,)}
    assert inspect_files({}, with_norm).native_heads.present == 0


def test_the_tables_speak_of_each_other() -> None:
    layouts = {layout.name for layout in LAYOUTS}
    assert len(layouts) == len(LAYOUTS)
    assert len(BY_NAME) == len(FAMILIES)
    for family in FAMILIES:
        assert set(family.layouts) <= layouts, family.name
        assert set(family.loads_first_only) <= {engine.name for engine in ENGINES}
    for engine in ENGINES:
        assert set(engine.since) <= set(BY_NAME), engine.name
    types = [model_type for family in FAMILIES for model_type in family.model_types]
    assert len(types) == len(set(types))
