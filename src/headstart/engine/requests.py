"""What a request must be, checked before it enters: a fault is told to its sender and to no one else."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

from headstart.engine.stopping import StopRules
from headstart.engine.text import Tokenizer
from headstart.errors import CapacityError, ConfigError
from headstart.records import SamplingParams


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request has to fit into.

    Attributes:
        vocab_size: token ids are below it.
        max_context: tokens of prompt and text together at most.
        cache_slots: slots of the whole cache.
    """

    vocab_size: int
    max_context: int
    cache_slots: int


def read_request(
    prompt: str | Iterable[int], params: SamplingParams, tokenizer: Tokenizer, limits: Limits
) -> tuple[list[int], StopRules]:
    """The tokens of a request and the rules that end its text.

    Args:
        prompt: a text, or token ids.
        params: its parameters.
        tokenizer: for the text, and for what will be written.
        limits: of the engine.

    Raises:
        ConfigError: an empty prompt, or ids or parameters that cannot hold.
        CapacityError: it would not fit even alone.
    """
    tokens = check_prompt(tokenizer.encode(prompt) if isinstance(prompt, str) else prompt, limits.vocab_size)
    check_room(len(tokens), params, limits)
    stop_rules = StopRules(params, tokenizer.end_ids, tokenizer.stream(), limits.max_context - len(tokens))
    check_params(params, stop_rules.end_tokens, limits.vocab_size)
    return tokens, stop_rules


def check_prompt(prompt: Iterable[int], vocab_size: int) -> list[int]:
    """The prompt as a list of Python ints.

    Raises:
        ConfigError: it is empty, or an id is not in the vocabulary.
    """
    try:
        tokens = [operator.index(token) for token in prompt]
    except TypeError as error:
        raise ConfigError(f"The prompt is not a list of token ids ({error}). Give a text or a list of ints.") from None
    if not tokens:
        raise ConfigError("The prompt has no tokens; at least 1 is needed. Give some text to go on from.")
    _check_ids("prompt", tokens, vocab_size)
    return tokens


def check_params(params: SamplingParams, end_tokens: Collection[int], vocab_size: int) -> None:
    """Refuse parameters that cannot hold for this model.

    Args:
        params: the request's.
        end_tokens: ids that would end its text.
        vocab_size: of the model.

    Raises:
        ConfigError: an id is not in the vocabulary, or no token can ever be chosen.
    """
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    _check_ids("allowed_tokens", params.allowed_tokens or (), vocab_size)
    allowed = range(vocab_size) if params.allowed_tokens is None else params.allowed_tokens
    if params.allowed_tokens is None and len(params.logit_bias) + len(end_tokens) < vocab_size:
        return  # something is left, whatever they bar
    possible = {token for token in allowed if params.logit_bias.get(token, 0.0) > -math.inf}
    if not possible:
        raise ConfigError(
            "No token can be chosen: logit_bias bars all that allowed_tokens leaves. Allow at least one token."
        )
    if params.min_tokens > 0 and possible <= set(end_tokens):
        raise ConfigError(
            f"min_tokens = {params.min_tokens}, but only end tokens ({sorted(possible)}) are allowed, and they are "
            "barred until then. Set min_tokens to 0 or allow another token."
        )


def check_room(num_prompt: int, params: SamplingParams, limits: Limits) -> None:
    """Refuse a request that would not fit even alone.

    Raises:
        CapacityError: the prompt leaves no room in the context, or the request may outgrow the cache.
    """
    if num_prompt >= limits.max_context:
        raise CapacityError(
            f"The prompt has {num_prompt} tokens; the context holds {limits.max_context}, of which at least 1 must be "
            "left to write. Shorten the prompt."
        )
    # the last token is never run, so it needs no slot
    needed = min(num_prompt + params.max_tokens, limits.max_context) - 1
    if needed > limits.cache_slots:
        raise CapacityError(
            f"The request may need {needed} slots ({num_prompt} prompt tokens, max_tokens = {params.max_tokens}), "
            f"the cache has {limits.cache_slots}. Shorten the prompt, lower max_tokens, or raise cache_tokens "
            "(--context)."
        )


def _check_ids(name: str, token_ids: Iterable[int], vocab_size: int) -> None:
    for token in token_ids:
        if not isinstance(token, Integral) or not 0 <= token < vocab_size:
            raise ConfigError(
                f"{name}: token id {token!r} is not in the vocabulary; ids are 0 to {vocab_size - 1}. "
                "Take ids from this model's own tokenizer."
            )


def params_for_each(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    """One set of parameters for each of `count` prompts.

    Raises:
        ConfigError: a list of another length came.
    """
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise ConfigError(
            f"{len(params)} sets of parameters came for {count} prompts. Give one for all, or one for each."
        )
    return list(params)
