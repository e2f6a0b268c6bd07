"""The sampling law: which token `SamplingParams` choose from a row of logits.

This is the reference. It is written to be read and compared with; a runtime may
compute the same law faster, and is held to it. It knows logits, counts and
noise, nothing of trees, models or caches.

The noise of a token is a function of (seed, position, token id) alone. A
position's choice is therefore the same however decoding got there, which is
what makes drafted and plain sampling equal token by token.

All arithmetic is float64. Noise has 32 bits for each token, so a token less
likely than about e**-26 of the likeliest is never chosen; `probabilities` is the
law with perfect noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart.errors import ConfigError, HeadstartError
from headstart.records import SamplingParams, TokenLogprobs

Floats = NDArray[np.float64]

_GOLDEN_64 = np.uint64(0x9E3779B97F4A7C15)
_GOLDEN_32 = np.uint32(0x9E3779B1)


def gumbel_noise(seed: ArrayLike, position: ArrayLike, token_ids: ArrayLike) -> Floats:
    """The standard Gumbel noise of tokens at a position.

    The argmax of `log(probability) + noise` over the tokens is a sample of the
    probabilities. A drafter that adds the same noise to its own logits draws in
    step with the trunk.

    Args:
        seed: of the sequence, 0 <= seed < 2**64.
        position: logical position of the token to be chosen, from 0.
        token_ids: non-negative. The three broadcast against each other.

    Returns:
        float64 of the broadcast shape, between -3.14 and 22.9.
    """
    with np.errstate(over="ignore"):  # all products and sums are modulo 2**32 or 2**64
        key = _mix64(np.asarray(seed, np.uint64) + _GOLDEN_64 * (np.asarray(position, np.uint64) + np.uint64(1)))
        low = (key & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        high = (key >> np.uint64(32)).astype(np.uint32)
        hashed = _mix32(_mix32((np.asarray(token_ids, np.uint32) * _GOLDEN_32) ^ low) ^ high)
    uniform = (hashed.astype(np.float64) + 0.5) / 2.0**32  # never 0 or 1
    noise: Floats = -np.log(-np.log(uniform))
    return noise


def _mix64(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _mix32(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The finaliser of 32-bit MurmurHash3."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))


def keep_likeliest(scaled: Floats, top_k: int, top_p: float, min_p: float) -> Floats:
    """Bar the unlikely tokens: top-k, then top-p, then min-p.

    Tokens are ranked by logit, ties by lower id. Top-k keeps exactly k of them.
    Top-p keeps the shortest beginning of the ranking whose share of the
    probability that top-k left reaches `top_p`. Min-p keeps tokens with at
    least `min_p` of the likeliest one's probability.

    Args:
        scaled: [V] logits after temperature; -inf is barred already.
        top_k, top_p, min_p: as in `SamplingParams`.

    Returns:
        [V] `scaled` with -inf at every token that was not kept.
    """
    if top_k == 0 and top_p == 1.0 and min_p == 0.0:
        return scaled
    ranking = np.argsort(-scaled, kind="stable")  # stable: equal logits stay in order of id
    if top_k:
        ranking = ranking[:top_k]
    weights = np.exp(scaled[ranking] - scaled[ranking[0]])  # relative to the likeliest
    if top_p < 1.0:
        # a sum in ranking order, compared with a share of its own end: no normalisation, so a
        # uniform distribution meets its threshold exactly
        cumulative = np.cumsum(weights)
        num_kept = int(np.searchsorted(cumulative, top_p * cumulative[-1])) + 1
        ranking, weights = ranking[:num_kept], weights[:num_kept]
    ranking = ranking[weights >= min_p]
    kept = np.full_like(scaled, -np.inf)
    kept[ranking] = scaled[ranking]
    return kept


class ReferenceChooser:
    """The law of one sequence, with the counts that its penalties need.

    Args:
        params: the law. `params.seed` is not read: a fresh seed may stand for `None`.
        seed: 64-bit.
        prompt: token ids of the prompt; they count for the repetition penalty only.
        end_tokens: every id that ends this sequence, `params.stop_token_ids`
            included; barred until `params.min_tokens` were written. Ids beyond
            the vocabulary are ignored: they cannot be chosen anyway.
        vocab_size: length V of a row of logits.

    Raises:
        ConfigError: a bias, an allowed id or a prompt id is not in the vocabulary.
    """

    def __init__(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int], vocab_size: int
    ) -> None:
        """Begin a sequence of which nothing was written yet."""
        self._params = params
        self._seed = seed
        self._vocab_size = vocab_size
        self._end_tokens = self._ids("end token", [token for token in end_tokens if token < vocab_size])
        self._biased = self._ids("logit_bias", list(params.logit_bias))
        self._bias = np.array(list(params.logit_bias.values()), np.float64)
        self._in_prompt = np.zeros(vocab_size, np.bool_)
        self._in_prompt[self._ids("prompt", prompt)] = True
        self._counts = np.zeros(vocab_size, np.int64)  # of the output, not of the prompt
        self._num_written = 0
        self._barred: NDArray[np.bool_] | None = None
        if params.allowed_tokens is not None:
            self._barred = np.ones(vocab_size, np.bool_)
            self._barred[self._ids("allowed_tokens", params.allowed_tokens)] = False

    def extend(self, token_ids: Sequence[int]) -> None:
        """Count tokens that were written (kept ones only)."""
        np.add.at(self._counts, self._ids("written", token_ids), 1)
        self._num_written += len(token_ids)

    def adjusted_logits(self, logits: NDArray[np.float32], path: Sequence[int] = ()) -> Floats:
        """Logits after bias, penalties and masks, before temperature.

        Args:
            logits: [V], of the model.
            path: tokens after the counted ones that count here as if written.

        Returns:
            float64 [V], -inf where a token is barred; at least one is finite.

        Raises:
            ConfigError: the parameters bar every token, or overflow.
            HeadstartError: a logit is NaN or +inf.
        """
        params = self._params
        adjusted = self._check_logits(logits).astype(np.float64)
        path_ids = self._ids("path", path)
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is found and refused below
            adjusted[self._biased] += self._bias
            if params.repetition_penalty != 1.0 or params.presence_penalty or params.frequency_penalty:
                counts = self._counts.copy()
                np.add.at(counts, path_ids, 1)
                seen = np.flatnonzero(self._in_prompt | (counts > 0))
                values = adjusted[seen]
                ratio = params.repetition_penalty
                adjusted[seen] = np.where(values > 0, values / ratio, values * ratio)
                adjusted -= params.presence_penalty * (counts > 0)
                adjusted -= params.frequency_penalty * counts
        if self._barred is not None:
            adjusted[self._barred] = -np.inf
        if self._num_written + len(path) < params.min_tokens:
            adjusted[self._end_tokens] = -np.inf
        self._check_highest(adjusted.max())
        return adjusted

    def probabilities(self, logits: NDArray[np.float32], path: Sequence[int] = ()) -> Floats:
        """The distribution [V] from which the law chooses; one-hot at temperature 0.

        Arguments and errors are those of `adjusted_logits`.
        """
        adjusted = self.adjusted_logits(logits, path)
        if self._params.temperature == 0.0:
            distribution = np.zeros_like(adjusted)
            distribution[adjusted.argmax()] = 1.0
            return distribution
        return np.exp(_log_softmax(self._filtered(adjusted)))

    def choose(
        self, logits: NDArray[np.float32], position: int, path: Sequence[int] = ()
    ) -> tuple[int, TokenLogprobs | None]:
        """The token at `position`, and its log-probabilities if the parameters ask for them.

        Arguments and errors are those of `adjusted_logits`; `position` is the
        logical position of the token to be chosen.
        """
        adjusted = self.adjusted_logits(logits, path)
        scores = adjusted
        if self._params.temperature > 0.0:
            scores = self._filtered(adjusted) + gumbel_noise(self._seed, position, np.arange(self._vocab_size))
        token = int(scores.argmax())  # numpy's argmax is the first, so ties go to the lowest id
        return token, self._logprobs(adjusted, token)

    def _filtered(self, adjusted: Floats) -> Floats:
        params = self._params
        with np.errstate(over="ignore"):
            scaled = adjusted / params.temperature
        self._check_highest(scaled.max())
        return keep_likeliest(scaled, params.top_k, params.top_p, params.min_p)

    def _logprobs(self, adjusted: Floats, token: int) -> TokenLogprobs | None:
        num_top = self._params.logprobs
        if num_top is None:
            return None
        logprobs = _log_softmax(adjusted)
        likeliest = np.argsort(-logprobs, kind="stable")[:num_top]
        top = tuple((int(t), float(logprobs[t])) for t in likeliest if logprobs[t] > -np.inf)
        return TokenLogprobs(chosen=float(logprobs[token]), top=top)

    def _check_logits(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        if logits.shape != (self._vocab_size,):
            raise HeadstartError(
                f"Logits of shape {logits.shape} came; this law is for ({self._vocab_size},). "
                "Build the chooser with the vocabulary size of the model that runs."
            )
        broken = np.isnan(logits) | (logits == np.inf)
        if broken.any():  # to choose on would hide damaged weights or a wrong kernel
            token = int(broken.argmax())
            raise HeadstartError(
                f"The model's logit for token id {token} is {logits[token]}; logits must be finite or -inf. "
                "Its weights are damaged or overflow in this format: check the file, or load it with wider weights."
            )
        return logits

    def _check_highest(self, highest: np.float64) -> None:
        if highest == -np.inf:
            raise ConfigError(
                "No token can be chosen: logit_bias, allowed_tokens and min_tokens bar all of them. "
                "Allow at least one token that does not end the text, or lower min_tokens."
            )
        if not highest < np.inf:  # +inf, or NaN from inf - inf
            raise ConfigError(
                "The logits overflow under these parameters; they must stay finite. "
                "Use a higher temperature (or 0), or smaller biases and penalties."
            )

    def _ids(self, name: str, token_ids: Sequence[int]) -> NDArray[np.int64]:
        ids = np.array(token_ids, np.int64)
        outside = (ids < 0) | (ids >= self._vocab_size)
        if outside.any():
            raise ConfigError(
                f"{name}: token id {ids[outside][0]} is not in the vocabulary; "
                f"ids are 0 to {self._vocab_size - 1}. Take ids from this model's own tokenizer."
            )
        return ids


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    result: Floats = shifted - np.log(np.exp(shifted).sum())
    return result
