"""Heads that are right about the texts at hand, on a tiny model: their unembedding is fitted to what they compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint, Tensor, open_checkpoint
from headstart.measure.doctor import Examiner, Patient, WrittenText
from headstart.runtime.native_heads import load_heads
from headstart.testing.passes import rows_of_one
from headstart.testing.tiny_heads import random_heads
from headstart.testing.tiny_models import write_tiny_gguf

# some way apart, so that their distances from their places are distinct too
ALPHABET = np.arange(20, 20 + 12 * 7, 7, dtype=np.int32)
NUM_PROMPT, NUM_TOKENS = 4, 70


@dataclass(frozen=True, kw_only=True)
class Ward:
    """All that a diagnosis takes."""

    checkpoint: Checkpoint
    trunk: TrunkConfig
    examiner: Examiner
    texts: tuple[WrittenText, ...]

    def healthy(self, **settings: Any) -> Patient:
        """Heads fitted to the texts; unless told otherwise sequential ones, with most that can be got wrong."""
        config = HeadsConfig(
            **{
                "kind": "sequential", "depth": 2, "taps": (1, 3), "hidden_stage": "pre_norm", "intermediate_size": 96,
                "own_unembedding": True, "draft_vocab_size": len(ALPHABET), **settings,
            }
        )  # fmt: skip
        weights, width = random_heads(config, self.trunk), self.trunk.hidden_size
        # as uneven as trained ones are; if all were 1, it would not matter which side of the norm is kept
        for name in [name for name in weights if name.endswith("final_norm")]:
            weights[name] *= np.exp(np.random.default_rng(2).normal(0.0, 0.8, width)).astype(np.float32)
        weights["unembedding"] = self._fitted_unembedding(config, weights)
        tensors = {
            name: Tensor(name, values.shape, "F32", np.ascontiguousarray(values).reshape(-1).view(np.uint8))
            for name, values in weights.items()
        }
        return Patient(config=config, weights=tensors, vocabulary=ALPHABET)

    def _fitted_unembedding(self, config: HeadsConfig, weights: dict[str, Any]) -> Any:
        """Least squares from what comes before the unembedding, which an unembedding that changes nothing shows."""
        width = self.trunk.hidden_size
        bare = {**weights, "unembedding": np.eye(width, dtype=np.float32)}
        trunk = self.examiner.trunk(config.taps)
        ids = np.arange(width, dtype=np.int32)
        heads = load_heads(trunk, self.checkpoint, replace(config, draft_vocab_size=width), bare, ids)
        features, wanted = [], []
        for text in self.texts:
            tokens = np.array(text.tokens, np.int32)
            pages = np.arange(len(tokens) // 16 + 1, dtype=np.int32)
            trunk.make_cache(len(pages))
            trunk.forward(rows_of_one(text.tokens, wanted=[]))
            for target in range(text.num_prompt, len(tokens) - 1):
                features.append(heads.logits(pages, tokens[:target], [int(tokens[target])])[:2])
                wanted.append(tokens[target : target + 2])
        inputs = np.concatenate(features).astype(np.float64)
        outputs = 8.0 * (np.concatenate(wanted)[:, None] == ALPHABET)
        solved = np.linalg.solve(inputs.T @ inputs + 0.1 * np.eye(width), inputs.T @ outputs)
        return solved.T.astype(np.float32)


@pytest.fixture(scope="session")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Ward:
    path = write_tiny_gguf(Path(tmp_path_factory.mktemp("models")) / "tiny.gguf", num_layers=4)
    checkpoint = open_checkpoint(path)
    random = np.random.default_rng(5)
    texts = tuple(WrittenText(tuple(random.choice(ALPHABET, NUM_TOKENS).tolist()), NUM_PROMPT) for _ in range(2))
    return Ward(
        checkpoint=checkpoint, trunk=read_config(checkpoint)[1], examiner=Examiner(checkpoint, threads=1), texts=texts
    )
