"""The native engine writes what its own trunk writes alone, token by token, with nothing cached and nothing drafted."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart import _native
from headstart.checkpoint import open_checkpoint
from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.law import ReferenceChooser
from headstart.decoding.lookup import LookupDrafter
from headstart.engine import Engine
from headstart.records import SamplingParams
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.testing.drafters import BranchingDrafter, OracleDrafter, RandomTreeDrafter, WrongDrafter
from headstart.testing.passes import prefill_logits
from headstart.testing.tiny_models import VOCAB_SIZE, write_tiny_gguf

MAX_TOKENS = 24
MODELS: dict[str, dict[str, Any]] = {
    "F32": {"kind": "F32"},
    "Q8_0": {"kind": "Q8_0"},
    "Q4_K": {"kind": "Q4_K"},
    "Q6_K biases": {"kind": "Q6_K", "biases": True, "tied": False},
    "qwen2 Q5_1": {"kind": "Q5_1", "family": "qwen2"},
    "qwen3 Q4_0": {"kind": "Q4_0", "family": "qwen3"},
    "mistral window": {"kind": "Q8_0", "family": "mistral", "window": 11},
    "int8": {"kind": "BF16", "weights": "int8"},
    "int8-row": {"kind": "F16", "weights": "int8-row"},
}
LAWS = {
    "greedy": SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True),
    "sampled": SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, temperature=1.0, seed=3),
    "everything": SamplingParams(
        max_tokens=MAX_TOKENS, ignore_eos=True, temperature=0.8, seed=5, top_k=50, top_p=0.95, min_p=0.01,
        repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.3, logit_bias={40: 2.0, 41: -3.0},
    ),
}  # fmt: skip
Truth = dict[tuple[int, ...], tuple[int, ...]]
DRAFTERS: dict[str, Callable[[Truth], Any]] = {
    "none": lambda truth: None,
    "lookup": lambda truth: LookupDrafter(),
    "oracle": OracleDrafter,
    "wrong": lambda truth: WrongDrafter(truth, VOCAB_SIZE),
    "branching": lambda truth: BranchingDrafter(truth, VOCAB_SIZE),
    "random-tree": lambda truth: RandomTreeDrafter(VOCAB_SIZE, seed=3),
}


def make_prompts() -> list[list[int]]:
    """Lengths around page borders; two begin alike; one repeats itself, for the lookup."""
    random = np.random.default_rng(0)
    prompts = [random.integers(0, VOCAB_SIZE, length).tolist() for length in (1, 15, 16, 33)]
    return [*prompts, [*prompts[3][:32], 7, 9], [11, 12, 13, 14] * 6]


PROMPTS = make_prompts()


def decode_alone(trunk: NativeTrunk, prompt: Sequence[int], params: SamplingParams) -> tuple[int, ...]:
    """Run the whole text anew for each token."""
    text, seed = list(prompt), params.seed or 0
    chooser = ReferenceChooser(params, seed, prompt, (), trunk.vocab_size)
    for _ in range(MAX_TOKENS):
        token, _ = chooser.choose(prefill_logits(trunk, text)[-1], len(text))
        chooser.extend([token])
        text.append(token)
    return tuple(text[len(prompt) :])


class Models:
    """Trunks and what they write alone, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.trunk = functools.cache(self._trunk)
        self.truth = functools.cache(self._truth)
        self.tokenizer = open_checkpoint(write_tiny_gguf(folder / "tokenizer.gguf")).tokenizer()

    def _trunk(self, name: str, threads: int = 1, instruction_set: str | None = None) -> NativeTrunk:
        options = dict(MODELS[name])
        weights = options.pop("weights", "stored")
        path = write_tiny_gguf(self._folder / f"{name}.gguf", **options)
        return load_trunk(open_checkpoint(path), threads=threads, weights=weights, instruction_set=instruction_set)

    def _truth(self, name: str, law: str) -> Truth:
        # not the best instruction set, which the engine takes: that they agree is part of the promise
        trunk = self.trunk(name, 1, _native.instruction_sets()[-2:][0])
        return {tuple(prompt): decode_alone(trunk, prompt, LAWS[law]) for prompt in PROMPTS}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("exactness"))


def written(
    models: Models, name: str, law: str, drafter: Any, *, threads: int = 1, **settings: Any
) -> tuple[Truth, int]:
    """What an engine writes for all prompts, and how many drafted tokens it kept."""
    curve = CostCurve({1: 1.0, 16: 1.2, 512: 40.0})  # rows are declared cheap, so that drafts get some
    engine = Engine(
        models.trunk(name, threads), models.tokenizer, drafter=drafter, cost_curve=curve, cache_tokens=2048, **settings
    )
    ids = {tuple(prompt): engine.submit(prompt, LAWS[law]) for prompt in PROMPTS}
    while not engine.idle:
        engine.step()
    completions = {prompt: engine.completion(sequence_id) for prompt, sequence_id in ids.items()}
    accepted = sum(completion.accepted for completion in completions.values())
    return {prompt: completion.token_ids for prompt, completion in completions.items()}, accepted


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("law", LAWS)
def test_every_drafter_and_law(models: Models, law: str, drafter: str) -> None:
    for name in ("Q8_0", "mistral window"):
        truth = models.truth(name, law)
        for settings in ({"max_batch": 1, "threads": 1}, {"max_batch": 6, "threads": 2, "prefill_chunk": 7}):
            found, accepted = written(models, name, law, DRAFTERS[drafter](truth), policy="always", **settings)
            assert found == truth
            assert drafter not in ("oracle", "branching") or accepted > MAX_TOKENS  # or nothing was tried


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model(models: Models, name: str, law: str) -> None:
    truth = models.truth(name, law)
    for threads in (1, 2):
        found, accepted = written(
            models, name, law, BranchingDrafter(truth, VOCAB_SIZE), threads=threads, policy="always"
        )
        assert found == truth
        assert accepted > MAX_TOKENS


def test_the_texts_are_worth_comparing(models: Models) -> None:
    """They must not all run into the same few tokens."""
    for name in MODELS:
        for law in ("sampled", "everything"):
            texts = models.truth(name, law).values()
            assert len({token for text in texts for token in text}) > 20, (name, law)
        assert len(set(models.truth(name, "greedy").values())) == len(PROMPTS)


def test_the_measured_policy(models: Models) -> None:
    for law in LAWS:
        truth = models.truth("Q8_0", law)
        found, _ = written(models, "Q8_0", law, LookupDrafter(), threads=2, policy="measured")
        assert found == truth


def test_logprobs_are_those_of_the_law(models: Models) -> None:
    params = dataclasses.replace(LAWS["everything"], logprobs=5)
    prompt = PROMPTS[3]
    truth = models.truth("Q8_0", "everything")
    engine = Engine(
        models.trunk("Q8_0"), models.tokenizer, drafter=OracleDrafter(truth), policy="always", cache_tokens=512
    )
    completion = engine.generate(prompt, params)
    assert completion.token_ids == truth[tuple(prompt)]
    assert completion.accepted > 0
    chooser, text = ReferenceChooser(params, params.seed or 0, prompt, (), VOCAB_SIZE), list(prompt)
    for token, found in zip(completion.token_ids, completion.logprobs, strict=True):
        chosen, expected = chooser.choose(prefill_logits(models.trunk("Q8_0", 2), text)[-1], len(text))
        assert expected is not None
        assert chosen == token
        assert found.chosen == pytest.approx(expected.chosen, abs=1e-9)
        assert [top for top, _ in found.top] == [top for top, _ in expected.top]
        chooser.extend([token])
        text.append(token)
