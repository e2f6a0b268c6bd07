"""Families of models and drafters that bring heads: a table, one entry a family.

What an entry says is what engines' loaders and model cards say. A family that
is not here is not refused: heads are found by their tensors all the same, only
no engine is then known to use them.

Sources: vLLM `config/speculative.py`, SGLang `configs/model_config.py`,
TensorRT-LLM `models/modeling_speculative.py`, llama.cpp's model sources, the
families' config.json on the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A family.

    Attributes:
        name: by which reports call it.
        title: for people.
        model_types: `model_type` in config.json, of the model or of its text part.
        architectures: entries of `architectures` in config.json.
        gguf_architectures: `general.architecture` in GGUF files.
        layouts: naming schemes of its heads; empty if they are not known here.
        count_keys: settings that say how many modules there are; those of all families if empty.
        counts_trunk: the count includes the trunk's own head.
        implied: modules that every original of the family has though no setting says so.
        is_drafter: the files hold heads alone.
        loads_first_only: engines that use one module of several.
        zero_centred_norms: norms are stored less one.
        reversed_order: its projection takes the state before the embedding.
        own_unembeddings: each module has an unembedding that is not the trunk's.
    """

    name: str
    title: str
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    gguf_architectures: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    count_keys: tuple[str, ...] = ()
    counts_trunk: bool = False
    implied: int | None = None
    is_drafter: bool = False
    loads_first_only: tuple[str, ...] = ()
    zero_centred_norms: bool = False
    reversed_order: bool = False
    own_unembeddings: bool = False


_NEXTN = ("num_nextn_predict_layers",)

FAMILIES: tuple[Family, ...] = (
    Family(
        name="deepseek_v3",
        title="DeepSeek V3, R1, V3.1",
        model_types=("deepseek_v3",),
        gguf_architectures=("deepseek2",),
        layouts=("deepseek", "nextn"),
        count_keys=_NEXTN,
    ),
    Family(
        name="deepseek_v32",
        title="DeepSeek V3.2",
        model_types=("deepseek_v32",),
        gguf_architectures=("deepseek32",),
        layouts=("deepseek", "nextn"),
        count_keys=_NEXTN,
    ),
    Family(
        name="glm_moe_dsa",
        title="GLM-5",
        model_types=("glm_moe_dsa",),
        gguf_architectures=("glm-dsa",),
        layouts=("deepseek", "nextn"),
        count_keys=_NEXTN,
    ),
    Family(
        name="deepseek_v4",
        title="DeepSeek V4",
        model_types=("deepseek_v4", "deepseek_v41"),
        gguf_architectures=("deepseek4",),
        layouts=("deepseek_v4", "dspark", "nextn"),
        count_keys=_NEXTN,
    ),
    Family(
        name="glm4_moe",
        title="GLM-4.5, 4.6",
        model_types=("glm4_moe",),
        gguf_architectures=("glm4moe",),
        layouts=("deepseek", "nextn"),
        count_keys=_NEXTN,
    ),
    Family(
        name="glm4_moe_lite",
        title="GLM-4.7-Flash",
        model_types=("glm4_moe_lite",),
        layouts=("deepseek", "nextn"),
        count_keys=_NEXTN,
    ),
    Family(name="glm_ocr", title="GLM-OCR", model_types=("glm_ocr",), layouts=("deepseek",), count_keys=_NEXTN),
    Family(
        name="qwen3_next",
        title="Qwen3-Next",
        model_types=("qwen3_next",),
        gguf_architectures=("qwen3next",),
        layouts=("qwen", "nextn"),
        count_keys=_NEXTN,
        implied=1,
        zero_centred_norms=True,
    ),
    Family(
        name="qwen3_5",
        title="Qwen3.5 and on",
        model_types=("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        gguf_architectures=("qwen35", "qwen35moe"),
        layouts=("qwen", "nextn"),
        count_keys=("mtp_num_hidden_layers",),
        zero_centred_norms=True,
    ),
    Family(
        name="mimo",
        title="MiMo-7B",
        model_types=("mimo",),
        architectures=("MiMoForCausalLM",),
        layouts=("mimo",),
        count_keys=_NEXTN,
        reversed_order=True,
    ),
    Family(
        name="mimo_v2",
        title="MiMo-V2",
        model_types=("mimo_v2", "mimo_v2_flash"),
        architectures=("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "MiMoV2OmniForCausalLM"),
        gguf_architectures=("mimo2",),
        layouts=("mimo_v2", "nextn"),
        loads_first_only=("vllm",),
    ),
    Family(
        name="ernie4_5_moe",
        title="ERNIE 4.5",
        model_types=("ernie4_5_moe",),
        gguf_architectures=("ernie4_5-moe",),
        layouts=("ernie",),
        count_keys=_NEXTN,
    ),
    Family(
        name="longcat_flash",
        title="LongCat-Flash",
        model_types=("longcat_flash", "longcat_flash_ngram"),
        architectures=("LongcatFlashForCausalLM",),
        layouts=("longcat",),
        implied=1,
    ),
    Family(
        name="nemotron_h",
        title="Nemotron-H, Nemotron 3 Super",
        model_types=("nemotron_h", "nemotron_h_puzzle"),
        gguf_architectures=("nemotron_h", "nemotron_h_moe"),
        layouts=("nemotron",),
        count_keys=_NEXTN,
    ),
    Family(
        name="step3p5",
        title="Step-3.5",
        model_types=("step3p5", "step3p7"),
        architectures=("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
        gguf_architectures=("step35",),
        layouts=("step", "deepseek", "nextn"),
        count_keys=_NEXTN,
        zero_centred_norms=True,
        own_unembeddings=True,
    ),
    Family(name="exaone_moe", title="EXAONE MoE", model_types=("exaone_moe",), count_keys=_NEXTN),
    Family(
        name="hy_v3",
        title="Hunyuan V3",
        model_types=("hy_v3",),
        gguf_architectures=("hy_v3",),
        count_keys=_NEXTN,
    ),
    Family(name="kimi_k3", title="Kimi K3", model_types=("kimi_k3",), count_keys=_NEXTN),
    Family(name="inkling", title="Inkling", model_types=("inkling_mm_model", "inkling_model"), reversed_order=True),
    Family(
        name="minimax",
        title="MiniMax M2, M3",
        model_types=("minimax_m2", "minimax_m3_vl", "minimax_m3"),
        count_keys=("num_mtp_modules",),
    ),
    Family(
        name="meta_multi_token",
        title="Meta's multi-token prediction models",
        layouts=("meta",),
        count_keys=("n_future_tokens",),
        counts_trunk=True,
    ),
    Family(
        name="gemma4_assistant",
        title="Gemma 4 assistant",
        model_types=("gemma4_assistant", "gemma4_unified_assistant"),
        gguf_architectures=("gemma4-assistant", "gemma4_assistant"),
        layouts=("assistant",),
        implied=1,
        is_drafter=True,
    ),
    Family(
        name="speculators_mtp",
        title="speculators' MTP file",
        layouts=("mimo",),
        implied=1,
        is_drafter=True,
        reversed_order=True,
    ),
    Family(
        name="eagle3",
        title="EAGLE-3 drafter",
        architectures=(
            "LlamaForCausalLMEagle3", "Eagle3Speculator", "Eagle3LlamaForCausalLM", "EAGLE3LlamaForCausalLM",
            "Eagle3DeepSeekV3ForCausalLM",
        ),
        gguf_architectures=("eagle3",),
        layouts=("eagle3",),
        implied=1,
        is_drafter=True,
    ),
    Family(
        name="eagle",
        title="EAGLE-1 or -2 drafter",
        model_types=("eagle",),
        architectures=("EagleLlamaForCausalLM", "EagleModel", "EagleSpeculator"),
        layouts=("eagle",),
        implied=1,
        is_drafter=True,
    ),
    Family(
        name="medusa",
        title="Medusa heads",
        model_types=("medusa",),
        architectures=("MedusaModel",),
        layouts=("medusa", "medusa_original"),
        count_keys=("medusa_num_heads", "num_heads"),
        is_drafter=True,
    ),
)  # fmt: skip

# Families that say what they are otherwise than by model type: a setting, and its values (any if empty)
_MARKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "eagle3": ("speculators_model_type", ("eagle3", "peagle")),
    "eagle": ("speculators_model_type", ("eagle",)),
    "speculators_mtp": ("speculators_model_type", ("mtp",)),
    "medusa": ("medusa_num_heads", ()),
    "meta_multi_token": ("n_future_tokens", ()),
}

# layouts that no model but a drafter has
_OF_LAYOUT = {"eagle3": "eagle3", "eagle": "eagle", "assistant": "gemma4_assistant", "medusa": "medusa"}
_OF_LAYOUT |= {"medusa_original": "medusa", "meta": "meta_multi_token"}

# GLM-4.7-Flash is written under DeepSeek's architecture; how its words are split tells it
_GLM_SPLITS = ("glm4", "chatglm-bpe")

BY_NAME: Mapping[str, Family] = {family.name: family for family in FAMILIES}


def family_of(settings: Mapping[str, Any], layout: str | None) -> Family | None:
    """The family of a checkpoint, by its settings; failing these, by how its heads are named.

    Args:
        settings: config.json, or the key-values of a GGUF file.
        layout: of the heads that were found.
    """
    for name, (key, values) in _MARKS.items():
        if key in settings and (not values or settings[key] in values):
            return BY_NAME[name]
    architectures = settings.get("architectures")
    named = {str(entry) for entry in architectures} if isinstance(architectures, list | tuple) else set()
    text = settings.get("text_config")
    types = {settings.get("model_type"), text.get("model_type") if isinstance(text, Mapping) else None}
    gguf = settings.get("general.architecture")
    if gguf == "deepseek2" and settings.get("tokenizer.ggml.pre") in _GLM_SPLITS:
        return BY_NAME["glm4_moe_lite"]
    # architectures first: MiMo and EAGLE-3 files carry the model type of the family they were made from
    for matches in (
        lambda family: named.intersection(family.architectures),
        lambda family: types.intersection(family.model_types),
        lambda family: gguf in family.gguf_architectures,
    ):
        for family in FAMILIES:
            if matches(family):
                return family
    return BY_NAME.get(_OF_LAYOUT.get(layout or "", ""))
