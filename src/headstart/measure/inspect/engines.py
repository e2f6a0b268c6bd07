"""Engines that draft with heads: a table of which families each implements, since when, and how it is switched on.

`since` names a release where one is established, else the change that brought
it. What is not listed is not known to work, which is not the same as known not
to; the table is of the date below.

Sources: vLLM `config/speculative.py` and docs, pull requests 12755, 16937, 17956,
20736, 22169, 34110; SGLang `configs/model_config.py` and docs; TensorRT-LLM
`models/modeling_speculative.py`; llama.cpp pull requests 22673, 24868, 25589,
25784, 25980, 26228, 26457, 26534; transformers pull request 46229; openvino.genai's docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

AS_OF = "2026-09"

FileFormat = Literal["safetensors", "gguf", "pickled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """An engine.

    Attributes:
        name: by which reports call it.
        title: for people.
        reads: file formats that it drafts from.
        since: families whose heads it uses, with the release or change that brought it; "" if not established.
        switches: arguments for heads inside a model, by kind; `{tokens}` is how many to guess.
        drafter_switches: arguments for heads in files of their own; `{path}` is the drafter's.
        conversion: how files of other formats become ones that it reads; empty if that does not carry heads.
        limit: what it does not do even then.
    """

    name: str
    title: str
    reads: tuple[FileFormat, ...]
    since: Mapping[str, str]
    switches: tuple[str, ...] = ()
    drafter_switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conversion: str = ""
    limit: str = ""


def _vllm(method: str) -> tuple[str, ...]:
    return (
        "--speculative-config",
        f'{{"method": "{method}", "model": "{{path}}", "num_speculative_tokens": {{tokens}}}}',
    )


ENGINES: tuple[Engine, ...] = (
    Engine(
        name="vllm",
        title="vLLM",
        reads=("safetensors",),
        since={
            "deepseek_v3": "pull request 12755",
            "deepseek_v32": "",
            "glm_moe_dsa": "",
            "deepseek_v4": "",
            "glm4_moe": "pull request 20736",
            "glm4_moe_lite": "",
            "glm_ocr": "",
            "qwen3_next": "0.10.2",
            "qwen3_5": "pull request 34110",
            "mimo": "",
            "mimo_v2": "",
            "ernie4_5_moe": "pull request 22169",
            "longcat_flash": "",
            "nemotron_h": "",
            "step3p5": "",
            "exaone_moe": "",
            "hy_v3": "",
            "kimi_k3": "",
            "inkling": "",
            "minimax": "",
            "gemma4_assistant": "a release after 0.19.1",
            "eagle": "",
            "eagle3": "pull request 16937",
            "medusa": "pull request 17956",
        },
        switches=("--speculative-config", '{"method": "mtp", "num_speculative_tokens": {tokens}}'),
        drafter_switches={
            "assistant": _vllm("mtp"),
            "eagle": _vllm("eagle"),
            "eagle3": _vllm("eagle3"),
            "medusa": _vllm("medusa"),
            "dspark": ("--speculative-config", '{"method": "dspark", "num_speculative_tokens": {tokens}}'),
        },
        limit="It checks chains, not trees, and refuses requests with min_p or logit_bias while it drafts.",
    ),
    Engine(
        name="sglang",
        title="SGLang",
        reads=("safetensors",),
        since=dict.fromkeys(
            (
                "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "deepseek_v4", "glm4_moe", "glm4_moe_lite", "glm_ocr",
                "qwen3_next", "qwen3_5", "mimo", "mimo_v2", "ernie4_5_moe", "longcat_flash", "nemotron_h", "step3p5",
                "exaone_moe", "hy_v3", "eagle", "eagle3",
            ),
            "",
        ),
        switches=("--speculative-algorithm", "EAGLE"),
        drafter_switches={
            "eagle": ("--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "{path}"),
            "eagle3": ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "{path}"),
        },
        limit="On a CPU it checks drafts greedily even where a temperature is asked for, so the text changes.",
    ),
    Engine(
        name="tensorrt-llm",
        title="TensorRT-LLM",
        reads=("safetensors",),
        since={
            **dict.fromkeys(
                (
                    "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "deepseek_v4", "qwen3_next", "qwen3_5", "nemotron_h",
                    "exaone_moe", "step3p5", "eagle3",
                ),
                "",
            ),
            "glm4_moe": "pull request 8256",
        },
        switches=(
            "--extra_llm_api_options",
            "a YAML file with: speculative_config: {decoding_type: MTP, max_draft_len: {tokens}}",
        ),
        drafter_switches={
            "eagle3": (
                "--extra_llm_api_options",
                "a YAML file with: speculative_config: {decoding_type: Eagle3, max_draft_len: {tokens}, "
                "speculative_model: {path}}",
            )
        },
        limit="It refuses min_p while it drafts.",
    ),
    Engine(
        name="llama.cpp",
        title="llama.cpp",
        reads=("gguf",),
        since={
            "qwen3_5": "pull request 22673",
            "qwen3_next": "pull request 25589",
            "mimo_v2": "pull request 26228",
            "glm4_moe": "pull request 26534",
            "glm4_moe_lite": "pull request 24868",
            "deepseek_v3": "pull request 24868",
            "deepseek_v32": "pull request 26457",
            "deepseek_v4": "pull request 25784",
            "glm_moe_dsa": "b10174",
            "step3p5": "",
            "hy_v3": "",
            "gemma4_assistant": "",
            "eagle3": "",
        },
        switches=("--spec-type", "draft-mtp", "--spec-draft-n-max", "{tokens}"),
        drafter_switches={
            "assistant": (
                "--spec-type", "draft-mtp", "--spec-draft-model", "{path}", "--spec-draft-n-max", "{tokens}",
            ),
            "eagle3": (
                "--spec-type", "draft-eagle3", "--spec-draft-model", "{path}", "--spec-draft-n-max", "{tokens}",
            ),
            "dspark": ("--spec-type", "draft-dspark", "--spec-draft-n-max", "{tokens}"),
        },
        conversion="convert_hf_to_gguf.py of a build that knows these heads; --no-mtp leaves them out",
        limit="Without --spec-type it loads such a file and leaves the heads unused.",
    ),
    Engine(
        name="transformers",
        title="transformers",
        reads=("safetensors",),
        since={"glm4_moe": "pull request 46229"},
        switches=("generate(use_mtp=True)",),
        limit="One sequence at a time, and as many guesses as there are modules.",
    ),
    Engine(
        name="openvino",
        title="OpenVINO GenAI",
        reads=(),
        since={"eagle3": "", "gemma4_assistant": ""},
        drafter_switches={
            "eagle3": ("draft_model({path})", "num_assistant_tokens={tokens}"),
            "assistant": ("draft_model({path})", "num_assistant_tokens={tokens}"),
        },
        conversion="optimum-cli export openvino, for the model and for the drafter",
        limit="Gemma 4 assistants only in builds from source.",
    ),
)  # fmt: skip
"""Engines other than this one, whose answer is not a table but whether heads were found that fit."""
