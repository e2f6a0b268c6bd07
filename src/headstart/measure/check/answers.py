"""Asks a server for tokens, in the terms of a vocabulary: ids if there is a tokenizer, their texts otherwise."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.engine.text import Tokenizer
from headstart.errors import UnsupportedError
from headstart.measure.openai_client import CompletionRequest, OpenAIClient
from headstart.measure.openai_reply import Guesses, ServerCompletion, Usage, id_in

Token = int | str
"""A token id, or a token's text where ids are not known."""

# what OpenAI allows at most, so most servers do
NUM_TOP = 5

# Nothing but the temperature is to shape what is drawn. Many servers cut off unlikely tokens or punish repetition by
# defaults of their own or of the model's, unless told not to. "All" is 0 to most, and -1 to some that refuse 0.
_WHOLE_LAW = {"min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
_LAWS: tuple[Mapping[str, Any], ...] = ({"top_k": 0, **_WHOLE_LAW}, {"top_k": -1, **_WHOLE_LAW}, {})
# From what tells most to what every server takes. Ids are vLLM's word for "tell me the tokens, not only their texts".
_MANNERS: tuple[tuple[int | None, Mapping[str, Any]], ...] = tuple(
    (num_top, {"top_p": 1.0, **law, **ids})
    for law in _LAWS
    for num_top in (NUM_TOP, None)
    for ids in ({"return_token_ids": True}, {})
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a server wrote.

    Attributes:
        text: as text.
        tokens: as tokens, without end tokens; `None` if the server does not tell them, or cut before the first that
            cannot be told from another.
        logprobs: the server's own log-probability of each of `tokens`; NaN where it does not say.
        tops: the server's likeliest at each of these places, best first, without those that cannot be told.
        best_logprobs: the highest that the server names at each of these places; NaN where it names none.
        finish_reason: "stop", "length", ...
        usage: the server's count of tokens.
        is_whole: whether `tokens` is all of the text.
    """

    text: str
    tokens: tuple[Token, ...] | None
    logprobs: tuple[float, ...] = ()
    tops: tuple[tuple[tuple[Token, float], ...], ...] = ()
    best_logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    is_whole: bool = True

    def own_margin(self, place: int) -> float | None:
        """Nats by which a token is less likely than the likeliest, by the server itself; `None` if it does not say."""
        if place >= len(self.best_logprobs):
            return None
        margin = self.best_logprobs[place] - self.logprobs[place]
        return margin if math.isfinite(margin) else None

    @property
    def ended(self) -> bool:
        """Whether the model ended the text itself (or a stop string did)."""
        return self.finish_reason == "stop"


class Asker:
    """Puts the check's questions to one server."""

    def __init__(
        self,
        client: OpenAIClient,
        tokenizer: Tokenizer | None = None,
        vocab_size: int = 0,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: the server.
            tokenizer: the vocabulary; prompts then go as ids, and tokens come back as ids.
            vocab_size: of it.
            fields: of every request, besides, such as one that switches drafting off.
        """
        self._client = client
        self._fields = dict(fields or {})
        self._manner = 0
        self._settled = False
        self._ids = None if tokenizer is None else _ids_by_text(tokenizer, vocab_size)
        self._end_ids = frozenset[int]() if tokenizer is None else frozenset(tokenizer.end_ids)
        named = set((self._ids or {}).values()) | self._end_ids
        self._ambiguous = [token for token in range(vocab_size) if token not in named]
        self._tells_ids = False
        self._guesses: Guesses | None = None
        self._counting = threading.Lock()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._client.url

    @property
    def model(self) -> str:
        """The name it is asked by."""
        return self._client.model

    @property
    def guesses(self) -> Guesses | None:
        """What was drafted for all answers so far, by what they say themselves; `None` if none of them does."""
        return self._guesses

    @property
    def unreadable_ids(self) -> list[int]:
        """Ids that cannot be told from others in what the server says; none if it tells ids."""
        return [] if self._tells_ids else self._ambiguous

    def ask(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        *,
        temperature: float = 0.0,
        seed: int | None = None,
        stop: tuple[str, ...] = (),
        streamed: bool = False,
    ) -> Answer:
        """One completion. Any number of threads may ask once the first answer is there.

        Raises:
            HeadstartError: the server fails, or refuses the request in every manner.
        """
        while True:
            logprobs, extra = _MANNERS[self._manner]
            request = CompletionRequest(
                prompt=prompt, max_tokens=max_tokens, temperature=temperature, seed=seed, stop=stop,
                logprobs=logprobs, extra={**extra, **self._fields},
            )  # fmt: skip
            try:
                completion = self._client.stream_whole(request) if streamed else self._client.complete(request)
            except UnsupportedError:
                if self._settled or self._manner == len(_MANNERS) - 1:
                    raise
                self._manner += 1
            else:
                self._settled = True  # what was taken once is refused for another reason
                return self._read(completion)

    def _read(self, completion: ServerCompletion) -> Answer:
        self._count(completion.guesses)
        tokens: list[Token] = []
        is_whole = bool(completion.tokens) or not completion.text
        self._tells_ids |= any(entry.token_id is not None for entry in completion.tokens)
        for place, entry in enumerate(completion.tokens):
            token = self._token(entry.text, entry.token_id)
            if token is None:
                # an end token has no text here, and a server may show its name
                is_whole = place == len(completion.tokens) - 1 and completion.finish_reason == "stop"
                break
            tokens.append(token)
        while tokens and tokens[-1] in self._end_ids:
            tokens.pop()
        entries = completion.tokens[: len(tokens)]
        return Answer(
            text=completion.text,
            tokens=tuple(tokens) if completion.tokens or is_whole else None,
            logprobs=tuple(math.nan if entry.logprob is None else entry.logprob for entry in entries),
            tops=tuple(self._known(entry.top) for entry in entries),
            best_logprobs=tuple(entry.top[0][1] if entry.top else math.nan for entry in entries),
            finish_reason=completion.finish_reason,
            usage=completion.usage,
            is_whole=is_whole,
        )

    def _count(self, guesses: Guesses | None) -> None:
        if guesses is None:
            return
        with self._counting:
            before = self._guesses or Guesses(0, 0)
            self._guesses = Guesses(before.drafted + guesses.drafted, before.accepted + guesses.accepted)

    def _known(self, top: Sequence[tuple[str, float]]) -> tuple[tuple[Token, float], ...]:
        """The likeliest, without those that cannot be told."""
        tokens = ((self._token(text, id_in(text)), logprob) for text, logprob in top)
        return tuple((token, logprob) for token, logprob in tokens if token is not None)

    def _token(self, text: str, token_id: int | None) -> Token | None:
        if self._ids is None:
            # without log-probabilities there are ids alone; and a part of a character looks like any other
            return token_id if not text else None if "\ufffd" in text else text
        return token_id if token_id is not None else self._ids.get(text)


def _ids_by_text(tokenizer: Tokenizer, vocab_size: int) -> dict[str, int]:
    """Ids of the tokens whose text is no other token's."""
    # after another token: some vocabularies drop the space before the first word of a text
    before = tokenizer.encode("a")[-1:]
    start = len(_decode(tokenizer, before))
    by_text = defaultdict(list)
    for token in range(vocab_size):
        by_text[_decode(tokenizer, [*before, token])[start:]].append(token)
    return {text: ids[0] for text, ids in by_text.items() if len(ids) == 1 and "\ufffd" not in text}


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    stream = tokenizer.stream()
    return stream.push(ids) + stream.finish()
