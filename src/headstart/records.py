"""What flows through the engine: plain records, no behaviour beyond validation.

A *sequence* is a prompt and what has been written after it. Its last token is
the *root* of the next round: chosen already, but not yet run through the trunk.
A *tree* holds a drafter's guesses for what follows the root. The trunk runs the
root and some nodes as *rows* of one pass and chooses its own token at each row;
a *verdict* says which nodes agree with those choices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from headstart.errors import ConfigError

if TYPE_CHECKING:
    # only the types: a command's help reads this module and need not wait for numpy
    import numpy as np
    from numpy.typing import NDArray

FinishReason = Literal["stop", "length", "context", "cancelled", "error"]

_NO_BIAS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How a sequence's tokens are chosen, and when it ends.

    The law at a position, in this order: logit bias, repetition / presence /
    frequency penalties, the allowed-token mask and `min_tokens`, temperature,
    top-k, top-p, min-p, then the Gumbel argmax with noise from
    (seed, position, token id). Temperature 0 is the argmax after the mask; ties
    go to the lowest id.

    Attributes:
        max_tokens: tokens to write at most, at least 1.
        temperature: 0 is greedy; otherwise positive.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set whose probability reaches this, in (0, 1].
        min_p: drop tokens below this share of the likeliest one, in [0, 1].
        repetition_penalty: divides positive and multiplies negative logits of
            tokens in prompt or output, positive; 1 is off.
        presence_penalty: subtracted once for each token already in the output.
        frequency_penalty: subtracted for each occurrence in the output.
        logit_bias: added to the logits of single token ids.
        allowed_tokens: if given, no other id can be chosen.
        seed: 64-bit; `None` draws a fresh one for each request.
        stop: strings that end the text; they are not part of it.
        stop_token_ids: further ids that end the text, beside the model's own.
        ignore_eos: write on after the model's own end tokens.
        min_tokens: end tokens cannot be chosen before so many were written.
        logprobs: report the log-probability of each chosen token and of this
            many of the likeliest (0 for the chosen alone); `None` is off.
            They are of the law before temperature, top-k, top-p and min-p.

    Raises:
        ConfigError: a value is out of its range, or of another type.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NO_BIAS)
    allowed_tokens: tuple[int, ...] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _require(
            _whole(self.max_tokens, 1) and self.max_tokens < 1 << 31,
            "max_tokens", self.max_tokens, "a whole number, at least 1 and below 2**31",
        )  # fmt: skip
        _require(_finite(self.temperature, 0.0), "temperature", self.temperature, "0 or a finite positive number")
        _require(_whole(self.top_k, 0), "top_k", self.top_k, "a whole number, 0 (off) or more")
        _require(_finite(self.top_p, 0.0) and 0 < self.top_p <= 1, "top_p", self.top_p, "above 0, at most 1")
        _require(_finite(self.min_p, 0.0) and self.min_p <= 1, "min_p", self.min_p, "between 0 and 1")
        _require(
            _finite(self.repetition_penalty, 0.0) and self.repetition_penalty > 0,
            "repetition_penalty", self.repetition_penalty, "a finite positive number; 1 is off",
        )  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            _require(_finite(getattr(self, name)), name, getattr(self, name), "a finite number; 0 is off")
        _require(isinstance(self.logit_bias, Mapping), "logit_bias", self.logit_bias, "a mapping from ids to numbers")
        for token, bias in self.logit_bias.items():
            # -inf is the customary way to forbid a token; +inf and NaN have no meaning
            _require(_finite(bias) or bias == -math.inf, f"logit_bias[{token}]", bias, "finite or -inf")
        if self.allowed_tokens is not None:
            holds = _listed(self.allowed_tokens) and len(self.allowed_tokens) > 0
            _require(holds, "allowed_tokens", self.allowed_tokens, "a tuple of token ids, not empty")
        _require(
            self.seed is None or (_whole(self.seed, 0) and self.seed < 1 << 64),
            "seed", self.seed, "a whole number between 0 and 2**64 - 1",
        )  # fmt: skip
        # a text alone would be taken for its characters, each a stop string
        _require(
            _listed(self.stop) and all(isinstance(text, str) and text for text in self.stop),
            "stop", self.stop, "a tuple of strings that are not empty",
        )  # fmt: skip
        _require(_listed(self.stop_token_ids), "stop_token_ids", self.stop_token_ids, "a tuple of token ids")
        _require(
            _whole(self.min_tokens, 0) and self.min_tokens <= self.max_tokens,
            "min_tokens", self.min_tokens, "a whole number between 0 and max_tokens",
        )  # fmt: skip
        _require(
            self.logprobs is None or (_whole(self.logprobs, 0) and self.logprobs <= 100),
            "logprobs", self.logprobs, "a whole number between 0 and 100",
        )  # fmt: skip


# Types are looked at as well: 2.5 tokens would never be counted down to 0.


def _whole(value: object, lowest: int) -> bool:
    return isinstance(value, Integral) and int(value) >= lowest


def _finite(value: object, lowest: float = -math.inf) -> bool:
    try:
        return isinstance(value, Real) and math.isfinite(value) and float(value) >= lowest
    except OverflowError:  # a whole number beyond all floats
        return False


def _listed(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} = {value!r}: it must be {allowed}.")


@dataclass(frozen=True, slots=True)
class Tree:
    """A drafter's guesses for one round, parents before children.

    Attributes:
        tokens: the guessed token id of each node.
        parents: index of each node's parent, or -1 for a child of the root.
        path_probabilities: the probability that a node and all before it are
            accepted, in [0, 1], never above its parent's.
        distributions: if the tokens were drawn, float64 [N + 1, V]: what the
            children of the root (row 0) and of node i (row i + 1) were drawn
            from; siblings one after another without replacement, in their
            order. A row without children is not read.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    path_probabilities: tuple[float, ...] = ()
    distributions: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)


EMPTY_TREE = Tree()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round yields for a sequence.

    Attributes:
        kept_nodes: indices of the accepted nodes, from the root's child down.
        next_token: the trunk's own choice after the last kept node. It is the
            root of the next round, so a round yields len(kept_nodes) + 1 tokens.
    """

    kept_nodes: tuple[int, ...]
    next_token: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position, natural logarithm.

    Attributes:
        chosen: of the token that was chosen.
        top: (token id, log-probability) of the likeliest, best first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """News of one sequence from one round.

    Attributes:
        sequence_id: whose news.
        token_ids: tokens that became final, in order.
        num_drafted_kept: how many of them, from the first, a drafter guessed.
        text: text that became final; never a part of a character.
        logprobs: one entry for each token, if they were asked for.
        finish_reason: set on the last event of a sequence; "error" if it failed
            alone, in which case asking for its completion raises what failed.
    """

    sequence_id: int
    token_ids: tuple[int, ...] = ()
    num_drafted_kept: int = 0
    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A finished sequence and its account.

    Attributes:
        text: what was written, without the stop string or end token.
        token_ids: the tokens written, an end token included.
        finish_reason: "stop" (end token or stop string), "length" (max_tokens),
            "context" (the model's context is full) or "cancelled".
        prompt_tokens: tokens of the prompt.
        seed: the seed that was used.
        rounds: trunk passes that yielded tokens of this sequence.
        drafted: nodes that were given rows.
        accepted: nodes that were kept.
        accepted_by_depth: kept nodes at depth 1, 2, ...
        drafted_by_depth: rounds that gave a row to some node of depth 1, 2, ...
        reached_by_depth: of those, rounds in which all earlier depths were kept.
        drafted_by_drafter: nodes that were given rows, by the name of who guessed them; of several that guessed the
            same, the one that was asked first.
        accepted_by_drafter: kept nodes, likewise.
        first_round_tokens: tokens of the pass that ended the prompt: one, and guesses that it checked.
        generation_s: seconds from that pass to the last token.
        prefill_s: seconds from admission to the first token.
        drafter: the name of what proposed; several are joined by "+".
        verification: the name of the rule by which drafts were judged: "choice",
            whose tokens are those of plain decoding, or "rejection:...", whose
            tokens have the same distribution but depend on the drafts.
        logprobs: one entry for each token, if they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    seed: int
    rounds: int
    drafted: int
    accepted: int
    accepted_by_depth: tuple[int, ...]
    drafted_by_depth: tuple[int, ...]
    reached_by_depth: tuple[int, ...]
    first_round_tokens: int
    generation_s: float
    prefill_s: float
    drafter: str
    verification: str = "choice"
    drafted_by_drafter: Mapping[str, int] = field(default_factory=dict)
    accepted_by_drafter: Mapping[str, int] = field(default_factory=dict)
    logprobs: tuple[TokenLogprobs, ...] = ()

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens kept for each round, the trunk's own included."""
        return len(self.token_ids) / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens after the first round, over the time since then; 0 if there are none.

        What guesses brought in the first round came while the prompt was read, and would seem to take no time.
        """
        return (len(self.token_ids) - self.first_round_tokens) / self.generation_s if self.generation_s > 0 else 0.0
