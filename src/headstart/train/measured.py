"""Acceptance as it is in use: held-out prompts answered by the real engine with the heads as they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.heads import HeadsConfig
from headstart.checkpoint import Checkpoint, Tokenizer
from headstart.engine import Engine
from headstart.engine.heads_drafter import HeadsDrafter
from headstart.records import Completion, SamplingParams
from headstart.runtime.native import load_trunk
from headstart.runtime.native_heads import load_heads

# nodes of a round: what a trunk pass can check is measured apart from what pays on one machine
MAX_NODES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredAcceptance:
    """What heads reached on some prompts.

    Attributes:
        tau: mean acceptance length, the trunk's own token included.
        survival: of rounds that drafted so deep, the share that kept a node of depth 1, 2, ...
        rounds: trunk passes that yielded tokens.
    """

    tau: float
    survival: tuple[float, ...]
    rounds: int


def summarise(completions: Sequence[Completion]) -> MeasuredAcceptance:
    """The figures over several texts together."""
    rounds = sum(completion.rounds for completion in completions)
    tokens = sum(len(completion.token_ids) for completion in completions)
    deepest = max((len(completion.drafted_by_depth) for completion in completions), default=0)

    def total(name: str, depth: int) -> int:
        counts = (getattr(completion, name) for completion in completions)
        return sum(count[depth] for count in counts if depth < len(count))

    return MeasuredAcceptance(
        tau=tokens / rounds if rounds else 0.0,
        survival=tuple(
            total("accepted_by_depth", depth) / max(1, total("drafted_by_depth", depth)) for depth in range(deepest)
        ),
        rounds=rounds,
    )


class AcceptanceMeter:
    """An engine of its own that answers the same prompts with whatever weights it is given."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        config: HeadsConfig,
        vocabulary: NDArray[np.int32] | None,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int = 64,
        max_depth: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Load the trunk.

        Args:
            checkpoint: the model.
            tokenizer: its own.
            config: of the heads.
            vocabulary: int32 [V] of a reduced draft vocabulary.
            prompts: token ids; none that the heads were trained on.
            max_tokens: tokens of an answer.
            max_depth: guesses ahead; by default as the config says.
            threads: CPU threads.
        """
        self._checkpoint, self._tokenizer = checkpoint, tokenizer
        self._config, self._vocabulary = config, vocabulary
        self._prompts, self._max_tokens = prompts, max_tokens
        self._max_depth = max_depth or config.depth
        self._trunk = load_trunk(checkpoint, threads=threads, taps=config.taps)

    def measure(self, weights: Mapping[str, NDArray[np.float32]]) -> MeasuredAcceptance:
        """Answer all prompts greedily, up to `MAX_NODES` guesses a round."""
        heads = load_heads(self._trunk, self._checkpoint, self._config, weights, self._vocabulary)
        engine = Engine(
            self._trunk,
            self._tokenizer,
            drafter=HeadsDrafter(heads, make_law=self._trunk.make_chooser, end_ids=self._tokenizer.end_ids),
            policy="always",
            max_nodes=MAX_NODES,
            max_depth=self._max_depth,
            max_batch=1,
        )
        with engine:
            return summarise(engine.generate_many(self._prompts, SamplingParams(max_tokens=self._max_tokens)))
