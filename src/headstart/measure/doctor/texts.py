"""Short texts that the trunk writes itself, asked in the model's own way or in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headstart.checkpoint import Tokenizer
from headstart.engine import Engine
from headstart.records import SamplingParams
from headstart.runtime.native import NativeTrunk

QUESTIONS = (
    "Why is the sky blue?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train goes 60 miles in 45 minutes. How fast is it, in miles an hour? Explain it step by step.",
    "Give me three tips for a good night's sleep.",
    "Tell a short story about a fox and a lighthouse.",
    "Explain to a child what photosynthesis is.",
    "What is the capital of France, and what is it known for?",
    "Write a friendly letter to a neighbour who is moving away.",
)

FRAMES: Mapping[str, str] = {
    "plain": "{}\n\n",
    "chatml": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "instruction": "### Instruction:\n{}\n\n### Response:\n",
    "brackets": "[INST] {} [/INST]",
}
"""Ways to ask, beside a model's own template. Marks that are no tokens of the model are spelt out."""

# Shorter ones end before heads have seen anything of them.
_LEAST_TOKENS = 8


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A prompt and what the trunk wrote after it, greedily.

    Attributes:
        tokens: both.
        num_prompt: tokens of the prompt, at least 2.
    """

    tokens: tuple[int, ...]
    num_prompt: int


def write_texts(
    trunk: NativeTrunk, tokenizer: Tokenizer, num_tokens: int, frame: str | None = None
) -> tuple[WrittenText, ...]:
    """Let the trunk answer the questions.

    Args:
        trunk: its cache is taken.
        tokenizer: of the trunk.
        num_tokens: of all answers together, at most.
        frame: the question goes where its braces are; `None` for the model's own template, or plain text if it has
            none.

    Returns:
        Those that got long enough, perhaps none.
    """
    if frame is None and tokenizer.chat_template is None:
        frame = FRAMES["plain"]
    prompts = [_asked(tokenizer, question, frame) for question in QUESTIONS]
    params = SamplingParams(max_tokens=max(num_tokens // len(QUESTIONS), _LEAST_TOKENS))
    with Engine(trunk, tokenizer, drafter=None, max_batch=len(prompts), cache_tokens=_room(prompts, params)) as engine:
        answers = engine.generate_many(prompts, params)
    return tuple(
        WrittenText((*prompt, *answer.token_ids), len(prompt))
        for prompt, answer in zip(prompts, answers, strict=True)
        if len(answer.token_ids) >= _LEAST_TOKENS
    )


def _asked(tokenizer: Tokenizer, question: str, frame: str | None) -> list[int]:
    if frame is None:
        return tokenizer.encode_chat([{"role": "user", "content": question}])
    return tokenizer.encode(frame.replace("{}", question))


def _room(prompts: Sequence[Sequence[int]], params: SamplingParams) -> int:
    """Tokens that all answers take at once, with a page to spare for each."""
    return sum(len(prompt) + params.max_tokens + 16 for prompt in prompts)
