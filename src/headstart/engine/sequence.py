"""One request on its way: its tokens, where it stands, and what it holds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as SequenceABC
from dataclasses import dataclass, field

import numpy as np

from headstart.decoding.statistics import AcceptanceStatistics
from headstart.engine.cache import PageTable
from headstart.engine.stopping import StopRules
from headstart.records import Completion, FinishReason, SamplingParams, TokenLogprobs, Tree
from headstart.runtime.protocol import Chooser


def token_hash(token_ids: SequenceABC[int]) -> str:
    """SHA-256, in hex, of token ids as little-endian int32: the equality that the engine promises."""
    return hashlib.sha256(np.asarray(token_ids, dtype="<i4").tobytes()).hexdigest()


@dataclass(kw_only=True, slots=True, eq=False)
class Sequence:
    """A prompt and what has been written after it.

        tokens   |------ prompt ------|---- written ----|
                 |--- committed ---|------- pending ----|
                 0                                   root

    *Pending* tokens are known but have not been run. In a plain round only the
    last is pending: the *root*, chosen by the round before. A prompt has all of
    its tokens pending at first, and so has a sequence that lost its pages.

    Attributes:
        id: its number in the engine.
        params: what was asked for.
        seed: the seed in use, drawn fresh if none was given.
        tokens: prompt and written tokens.
        num_prompt: how many of them are the prompt.
        chooser: the sampling law with its counts; knows every written token.
        stop_rules: where it ends.
        pages: its cache pages while it is running, `None` while it waits.
        text: pieces of text that became final.
        logprobs: one entry for each written token, if asked for.
        statistics: what its drafts came to.
        admitted_s: when it was first admitted, on the engine's clock.
        first_token_s: when its first token was chosen.
        last_token_s: when its last token was chosen.
    """

    id: int
    params: SamplingParams
    seed: int
    tokens: list[int]
    num_prompt: int
    chooser: Chooser
    stop_rules: StopRules
    pages: PageTable | None = None
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    statistics: AcceptanceStatistics = field(default_factory=AcceptanceStatistics)
    admitted_s: float | None = None
    first_token_s: float | None = None
    first_round_tokens: int = 0
    last_token_s: float | None = None

    @property
    def num_pending(self) -> int:
        """Known tokens that have not been run; at least 1 while the sequence lives."""
        committed = self.pages.committed if self.pages is not None else 0
        return len(self.tokens) - committed

    def record_round(self, tree: Tree, num_kept: int, num_tokens: int, now: float) -> None:
        """Count a round that yielded tokens.

        Args:
            tree: the nodes that had rows.
            num_kept: how many of them became final.
            num_tokens: tokens that became final.
            now: seconds on the engine's clock.
        """
        self.statistics.record(tree, num_kept, num_tokens)
        if self.first_token_s is None:
            self.first_token_s, self.first_round_tokens = now, num_tokens
        self.last_token_s = now

    def completion(self, finish_reason: FinishReason, drafter: str, verification: str) -> Completion:
        """The account of a sequence that has ended.

        Args:
            finish_reason: why it has.
            drafter: the name of what proposed for it.
            verification: the name of the rule that judged.
        """
        statistics = self.statistics
        return Completion(
            text="".join(self.text),
            token_ids=tuple(self.tokens[self.num_prompt :]),
            finish_reason=finish_reason,
            prompt_tokens=self.num_prompt,
            seed=self.seed,
            rounds=statistics.rounds,
            drafted=statistics.drafted,
            accepted=statistics.accepted,
            accepted_by_depth=tuple(statistics.accepted_by_depth),
            drafted_by_depth=tuple(statistics.drafted_by_depth),
            reached_by_depth=tuple(statistics.reached_by_depth),
            first_round_tokens=self.first_round_tokens,
            generation_s=_between(self.first_token_s, self.last_token_s),
            prefill_s=_between(self.admitted_s, self.first_token_s),
            drafter=drafter,
            verification=verification,
            drafted_by_drafter=dict(statistics.drafted_by_drafter),
            accepted_by_drafter=dict(statistics.accepted_by_drafter),
            logprobs=tuple(self.logprobs),
        )


def _between(start_s: float | None, end_s: float | None) -> float:
    """Seconds from one moment to another; 0 if either never came."""
    return end_s - start_s if start_s is not None and end_s is not None else 0.0
