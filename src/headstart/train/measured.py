"""Acceptance as it is in use: held-out prompts answered by the real engine with the heads as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.heads import HeadsConfig
from headstart.checkpoint import Checkpoint
from headstart.decoding.statistics import AcceptanceStatistics
from headstart.engine import Engine
from headstart.engine.heads_drafter import HeadsDrafter
from headstart.records import Completion, SamplingParams
from headstart.runtime.native import NativeTrunk
from headstart.runtime.native_heads import load_heads

MAX_ROWS = 16
"""Rows of a round, the root's among them: what a pass can check is measured apart from what pays on one machine."""

_ANSWER_TOKENS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredAcceptance:
    """What heads reached on some prompts; the glossary has the definitions.

    Attributes:
        tau: mean acceptance length, the trunk's own token included.
        conditional_acceptance: of depth 1, 2, ...
        survival: of depth 1, 2, ...
        rounds: trunk passes that yielded tokens.
    """

    tau: float
    conditional_acceptance: tuple[float, ...]
    survival: tuple[float, ...]
    rounds: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "tau": self.tau,
            "conditional_acceptance": list(self.conditional_acceptance),
            "survival": list(self.survival),
            "rounds": self.rounds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MeasuredAcceptance:
        """From what `to_json` gave, perhaps among other keys."""
        return cls(
            tau=data["tau"],
            conditional_acceptance=tuple(data["conditional_acceptance"]),
            survival=tuple(data["survival"]),
            rounds=data["rounds"],
        )


def summarise(completions: Iterable[Completion]) -> MeasuredAcceptance:
    """The figures over several texts together."""
    total = AcceptanceStatistics.total(AcceptanceStatistics.of(completion) for completion in completions)
    return MeasuredAcceptance(
        tau=total.mean_acceptance_length,
        conditional_acceptance=total.conditional_acceptance,
        survival=total.survival,
        rounds=total.rounds,
    )


class AcceptanceMeter:
    """Answers the same prompts with whatever weights the heads have."""

    def __init__(
        self,
        trunk: NativeTrunk,
        checkpoint: Checkpoint,
        config: HeadsConfig,
        vocabulary: NDArray[np.int32] | None,
        prompts: Sequence[Sequence[int]],
    ) -> None:
        """Take what does not change.

        Args:
            trunk: loaded with the heads' taps; its cache is taken at each measurement.
            checkpoint: the file it was loaded from.
            config: of the heads.
            vocabulary: int32 [V] of a reduced draft vocabulary.
            prompts: token ids; none that the heads were trained on.
        """
        self._trunk, self._checkpoint, self._tokenizer = trunk, checkpoint, checkpoint.tokenizer()
        self._config, self._vocabulary, self._prompts = config, vocabulary, prompts

    def measure(self, weights: Mapping[str, NDArray[np.float32]]) -> MeasuredAcceptance:
        """Answer all prompts greedily, with as many guesses as `MAX_ROWS` permits and the depth of the training."""
        return summarise(self.answers(weights))

    def answers(
        self, weights: Mapping[str, NDArray[np.float32]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        """The answers that `measure` looks at.

        Args:
            weights: of the heads.
            temperature: 0 is greedy.
            seed: of what is drawn.
        """
        heads = load_heads(self._trunk, self._checkpoint, self._config, weights, self._vocabulary)
        engine = Engine(
            self._trunk,
            self._tokenizer,
            drafter=HeadsDrafter(heads, make_law=self._trunk.make_chooser, end_ids=self._tokenizer.end_ids),
            policy="always",
            max_nodes=MAX_ROWS - 1,
            max_depth=self._config.depth,
            max_batch=1,
        )
        params = SamplingParams(max_tokens=_ANSWER_TOKENS, temperature=temperature, seed=seed)
        with engine:
            return list(engine.generate_many(self._prompts, params))
