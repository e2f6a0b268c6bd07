"""Checkpoints as they are published, rebuilt as headers of true names, shapes and settings, and what re-uploads do to
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headstart.measure.inspect import Report
from headstart.testing.published_drafters import (
    EAGLE,
    EAGLE3_CONFIG,
    EAGLE_CONFIG,
    GEMMA,
    GEMMA_CONFIG,
    MEDUSA,
    MEDUSA_CONFIG,
    OLD_MEDUSA,
    OLD_MEDUSA_CONFIG,
    SPECULATORS_CONFIG,
    eagle3,
)
from headstart.testing.published_models import (
    DEEPSEEK,
    DEEPSEEK_CONFIG,
    DEEPSEEK_V4_CONFIG,
    DEEPSEEK_V4_MODULE,
    DSPARK_STAGES,
    ERNIE_CONFIG,
    GLM_CONFIG,
    LLAMA_CONFIG,
    LONGCAT_CONFIG,
    LONGCAT_MODULE,
    META_CONFIG,
    META_HEADS,
    META_TRUNK,
    MIMO_CONFIG,
    MIMO_V2_CONFIG,
    MINIMAX_CONFIG,
    NEMOTRON_CONFIG,
    NEMOTRON_MODULE,
    QWEN35_CONFIG,
    QWEN35_TRUNK,
    QWEN_NEXT_CONFIG,
    STEP_CONFIG,
    deepseek_block,
    ernie_module,
    glm_block,
    mimo_module,
    mimo_v2_module,
    qwen_module,
    step_module,
)
from headstart.testing.published_parts import (
    Shapes,
    trunk,
    without,
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A layout, and what an inspection must say of it."""

    config: dict[str, Any] | None
    shapes: Shapes | None
    family: str | None
    promised: int | None
    present: int | None
    kind: str | None
    depths: int | None
    usable: str = ""  # engines, by name
    says: tuple[str, ...] = ()  # in the findings
    kinds: dict[str, str] = field(default_factory=dict)
    index_only: bool = False


ALL_BUT_LLAMA_CPP = "vllm sglang tensorrt-llm"

ORIGINALS = {
    "DeepSeek-V3": Published(
        config=DEEPSEEK_CONFIG, shapes=DEEPSEEK, kinds={"_proj.weight": "F8_E4M3"}, family="deepseek_v3", promised=1,
        present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP, says=("copies",),
    ),
    "DeepSeek-V3, its index alone": Published(
        config=DEEPSEEK_CONFIG, shapes=DEEPSEEK, index_only=True, family="deepseek_v3", promised=1, present=1,
        kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP, says=("names are known but no sizes",),
    ),
    "GLM-4.5-Air": Published(
        config=GLM_CONFIG, shapes=trunk(4096, 151552) | glm_block(46), family="glm4_moe", promised=1, present=1,
        kind="sequential", depths=1, usable=f"{ALL_BUT_LLAMA_CPP} transformers",
    ),
    "Qwen3-Next": Published(
        config=QWEN_NEXT_CONFIG, shapes=trunk(2048, 151936) | qwen_module(2048, fused=False, num_experts=512),
        family="qwen3_next", promised=1, present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
        says=("less one",),
    ),
    "Qwen3.5-MoE": Published(
        config=QWEN35_CONFIG, shapes=QWEN35_TRUNK | qwen_module(2048, fused=True, num_experts=256),
        family="qwen3_5", promised=1, present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
        says=("fused",),
    ),
    "MiMo-7B": Published(
        config=MIMO_CONFIG, shapes=trunk(4096, 151680) | mimo_module(0), family="mimo", promised=1, present=1,
        kind="sequential", depths=1, usable="vllm sglang", says=("state first",),
    ),
    "MiMo-V2-Flash": Published(
        config=MIMO_V2_CONFIG,
        shapes=trunk(4096, 152576) | mimo_v2_module(0) | mimo_v2_module(1) | mimo_v2_module(2),
        family="mimo_v2", promised=None, present=3, kind="sequential", depths=3, usable="vllm sglang",
    ),
    "ERNIE-4.5-21B-A3B": Published(
        config=ERNIE_CONFIG, shapes=trunk(2560, 103424) | ernie_module(), family="ernie4_5_moe", promised=1,
        present=1, kind="sequential", depths=1, usable="vllm sglang",
    ),
    "LongCat-Flash": Published(
        config=LONGCAT_CONFIG, shapes=trunk(6144, 131072) | LONGCAT_MODULE, family="longcat_flash", promised=1,
        present=1, kind="sequential", depths=1, usable="vllm sglang",
    ),
    "Nemotron 3 Super": Published(
        config=NEMOTRON_CONFIG, shapes={"backbone.embeddings.weight": (131072, 4096), **NEMOTRON_MODULE},
        family="nemotron_h", promised=1, present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
    ),
    "Step-3.5-Flash": Published(
        config=STEP_CONFIG, shapes=trunk(4096, 128896) | step_module(45) | step_module(46) | step_module(47),
        family="step3p5", promised=3, present=3, kind="sequential", depths=3, usable=ALL_BUT_LLAMA_CPP,
    ),
    "DeepSeek-V4": Published(
        config=DEEPSEEK_V4_CONFIG, shapes=trunk(4096, 129280) | DEEPSEEK_V4_MODULE, family="deepseek_v4", promised=1,
        present=1, kind="sequential", depths=1, usable=ALL_BUT_LLAMA_CPP,
    ),
    "Meta's 7B_1T_4": Published(
        config=META_CONFIG, shapes=META_TRUNK | META_HEADS, family="meta_multi_token", promised=3, present=3,
        kind="parallel", depths=3,
    ),
    "Meta's 7B_1T_4, pickled as published": Published(
        config=META_CONFIG, shapes=None, family="meta_multi_token", promised=3, present=None, kind="parallel",
        depths=3, says=("pickled",),
    ),
    "Llama 3.2": Published(
        config=LLAMA_CONFIG, shapes=without(trunk(2048, 128256), "lm_head"), family="llama", promised=0, present=0,
        kind=None, depths=0,
    ),
    "EAGLE-3 of its authors": Published(
        config=EAGLE3_CONFIG, shapes=eagle3("midlayer"), kinds={"2t": "I64", "t2d": "BOOL"}, family="eagle3",
        promised=1, present=1, kind="eagle3", depths=None, usable=ALL_BUT_LLAMA_CPP,
    ),
    "EAGLE-1": Published(
        config=EAGLE_CONFIG, shapes=EAGLE, family="eagle", promised=1, present=1, kind="eagle", depths=None,
        usable="vllm sglang",
    ),
    "Medusa as vLLM takes it": Published(
        config=MEDUSA_CONFIG, shapes=MEDUSA, family="medusa", promised=5, present=5, kind="medusa", depths=5,
        usable="vllm",
    ),
    "Medusa of its authors": Published(
        config=OLD_MEDUSA_CONFIG, shapes=OLD_MEDUSA, family="medusa", promised=2, present=2, kind="medusa", depths=2,
        usable="vllm",
    ),
    "Gemma 4 assistant": Published(
        config=GEMMA_CONFIG, shapes=GEMMA, kinds={"token_ordering": "I64"}, family="gemma4_assistant", promised=1,
        present=1, kind="assistant", depths=None, usable="vllm",
    ),
}  # fmt: skip

TRAPS = {
    "the settings promise, the tensors lack (a quantised GLM)": Published(
        config=GLM_CONFIG | {"quantization_config": {"quant_method": "awq", "bits": 4}}, shapes=trunk(4096, 151552),
        family="glm4_moe", promised=1, present=0, kind="sequential", depths=0, says=("promises 1, but no tensors",),
    ),
    "the settings promise, as MiniMax-M2's do, what was never published": Published(
        config=MINIMAX_CONFIG, shapes=trunk(3072, 200064), family="minimax", promised=3, present=0, kind=None,
        depths=0, says=("num_mtp_modules promises 3",),
    ),
    "no setting promises, and they are dropped (Qwen3-Next through AutoAWQ)": Published(
        config=QWEN_NEXT_CONFIG, shapes=trunk(2048, 151936), family="qwen3_next", promised=1, present=0,
        kind="sequential", depths=0, says=("the family (Qwen3-Next) promises 1",),
    ),
    "the prefix without modules": Published(
        config=QWEN35_CONFIG, shapes=QWEN35_TRUNK | {"mtp.embed_tokens.weight": (248320, 2048)}, family="qwen3_5",
        promised=1, present=0, kind="sequential", depths=0, says=("no module is among them: mtp.embed_tokens",),
    ),
    "the prefix with heads of another kind (DeepSeek-V4-Flash-0731)": Published(
        config=DEEPSEEK_V4_CONFIG | {"dspark_block_size": 5}, shapes=trunk(4096, 129280) | DSPARK_STAGES,
        family="deepseek_v4", promised=1, present=1, kind="dspark", depths=5, usable="vllm", says=("in stages",),
    ),
    "the count set to 0, the tensors left": Published(
        config=DEEPSEEK_CONFIG | {"num_nextn_predict_layers": 0}, shapes=DEEPSEEK, family="deepseek_v3", promised=0,
        present=1, kind="sequential", depths=1, says=("num_nextn_predict_layers is 0",),
    ),
    "more promised than there is": Published(
        config=STEP_CONFIG, shapes=trunk(4096, 128896) | step_module(45), family="step3p5", promised=3, present=1,
        kind="sequential", depths=1, says=("promises 3, but 1 complete",),
    ),
    "one part lost": Published(
        config=MIMO_CONFIG, shapes=trunk(4096, 151680) | without(mimo_module(0), "hidden_layernorm"), family="mimo",
        promised=1, present=0, kind="sequential", depths=0, says=("Module 0 lacks the norm of the state",),
    ),
    "only a last norm and a copy of the unembedding are left": Published(
        config=DEEPSEEK_CONFIG, shapes=trunk(7168, 129280) | {
            "model.layers.61.shared_head.norm.weight": (7168,),
            "model.layers.61.shared_head.head.weight": (129280, 7168),
        },
        family="deepseek_v3", promised=1, present=0, kind="sequential", depths=0, says=("lacks the projection",),
    ),
    "quantised names": Published(
        config=GLM_CONFIG | {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        shapes=trunk(4096, 151552) | without(glm_block(46, num_experts=128), "eh_proj") | {
            "model.layers.46.eh_proj.qweight": (1024, 4096),
            "model.layers.46.eh_proj.scales": (64, 4096),
            "model.layers.46.eh_proj.qzeros": (64, 512),
        },
        kinds={"qweight": "I32", "qzeros": "I32"}, family="glm4_moe", promised=1, present=1, kind="sequential",
        depths=1, usable=f"{ALL_BUT_LLAMA_CPP} transformers",
    ),
    "scales without their values": Published(
        config=GLM_CONFIG, shapes=trunk(4096, 151552) | without(glm_block(46), "eh_proj") | {
            "model.layers.46.eh_proj.weight_scale_inv": (32, 64),
        },
        family="glm4_moe", promised=1, present=0, kind="sequential", depths=0, says=("lacks the projection",),
    ),
    "a trunk pruned without its heads": Published(
        config=GLM_CONFIG | {"n_routed_experts": 96}, shapes=trunk(4096, 151552) | glm_block(46), family="glm4_moe",
        promised=1, present=1, kind="sequential", depths=1, says=("has 128 experts, but the settings speak of 96",),
    ),
    "a projection stored transposed (ERNIE-4.5-300B)": Published(
        config=ERNIE_CONFIG, shapes=trunk(2560, 103424) | ernie_module(transposed=True), family="ernie4_5_moe",
        promised=1, present=1, kind="sequential", depths=1, says=("stored transposed",),
    ),
    "heads of another model": Published(
        config=MIMO_CONFIG | {"hidden_size": 5120}, shapes=trunk(5120, 151680) | mimo_module(0), family="mimo",
        promised=1, present=1, kind="sequential", depths=1, says=("another model's",),
    ),
    "speculators' EAGLE-3, whose layer SGLang drops": Published(
        config=SPECULATORS_CONFIG, shapes=eagle3("layers.0"), kinds={"d2t": "I64", "t2d": "BOOL"}, family="eagle3",
        promised=1, present=1, kind="eagle3", depths=5, usable="vllm tensorrt-llm",
    ),
    "an EAGLE-3 without its map, its layers and its norm's place": Published(
        config={key: value for key, value in SPECULATORS_CONFIG.items()
                if key not in ("norm_before_residual", "eagle_aux_hidden_state_layer_ids")},
        shapes=without(eagle3("layers.0"), "2t", "t2d"), family="eagle3", promised=1, present=1, kind="eagle3",
        depths=5, says=("d2t, which says which, is missing", "which layers", "norm_before_residual is not stated"),
    ),
    "speculators' MTP file, which no engine takes as it is": Published(
        config={"architectures": ["MTPSpeculator"], "speculators_model_type": "mtp"}, shapes=mimo_module(0, ""),
        family="speculators_mtp", promised=1, present=1, kind="sequential", depths=1,
    ),
    "a family that no one knows": Published(
        config={"model_type": "homegrown", "hidden_size": 4096, "num_hidden_layers": 46},
        shapes=trunk(4096, 151552) | glm_block(46), family="homegrown", promised=0, present=1, kind="sequential",
        depths=1, says=("no setting speaks of them",),
    ),
    "heads in a naming scheme that is not known": Published(
        config={"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 2}, "num_hidden_layers": 8},
        shapes={"mtp.stage.0.mixer_in.weight": (8, 8)}, family="inkling", promised=2, present=None, kind=None,
        depths=2, says=("may be heads",),
    ),
    "a tensors' file without settings": Published(
        config=None, shapes=trunk(7168, 129280) | deepseek_block(61), family=None, promised=None, present=1,
        kind="sequential", depths=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ORIGINALS, *TRAPS])
def test_a_layout_is_told(name: str, inspect_files: Callable[..., Report]) -> None:
    published = (ORIGINALS | TRAPS)[name]
    report = inspect_files(published.config, published.shapes, kinds=published.kinds, index_only=published.index_only)
    heads = report.native_heads
    assert report.family == published.family
    assert (heads.promised, heads.present) == (published.promised, published.present)
    assert (heads.kind, heads.depths) == (published.kind, published.depths)
    known = None not in (published.promised, published.present)
    assert heads.agrees is ((published.promised == published.present) if known else None)
    usable = {engine.name for engine in report.engines if engine.supported}
    assert usable == set(published.usable.split())
    for engine in report.engines:
        assert bool(engine.flags) == (engine.supported or engine.after_conversion)
    texts = [finding.text for finding in report.findings]
    for words in published.says:
        assert any(words in text for text in texts), texts


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_original_has_no_problems(name: str, inspect_files: Callable[..., Report]) -> None:
    published = ORIGINALS[name]
    report = inspect_files(published.config, published.shapes, kinds=published.kinds, index_only=published.index_only)
    assert [finding for finding in report.findings if finding.level == "problem"] == []


def test_unembeddings_of_each_module_are_no_copies(inspect_files: Callable[..., Report]) -> None:
    """Step-3.5's differ from the trunk's, by which its heads guess next to nothing right."""
    published = ORIGINALS["Step-3.5-Flash"]
    report = inspect_files(published.config, published.shapes)
    assert report.native_heads.layout == "step"
    assert report.sizes.copied_parameters == 0
    assert report.sizes.heads_parameters is not None
    assert report.sizes.heads_parameters > 3 * 128896 * 4096
