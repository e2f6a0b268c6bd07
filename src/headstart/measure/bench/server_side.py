"""One side of a run on a server: any that speaks OpenAI's protocol.

Tokens are those that the server counts (`usage`). A message of a stream may hold any number of them, so messages are
arrivals of text and nothing else; a server that counts no tokens cannot be measured.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from headstart.errors import HeadstartError
from headstart.measure.bench.clock import Clock
from headstart.measure.bench.records import PassSize, RequestRecord
from headstart.measure.bench.run import Answers
from headstart.measure.bench.server_counters import read_counters
from headstart.measure.openai_client import CompletionRequest
from headstart.measure.openai_reply import Chunk, Usage
from headstart.measure.workload import Ask, Feed, Filler, Prompt
from headstart.records import SamplingParams

# How often to ask whether to stop while nothing arrives.
_POLL_S = 0.1

# Sentences of the texts by which tokens are estimated. A sentence has fewer tokens than are reckoned here, so that a
# server takes the longer text if it takes prompts of the length that is asked for.
_SHORT, _LONG = 2, 64
_TOKENS_OF_SENTENCE = 30


class Client(Protocol):
    """What is needed of `headstart.measure.openai_client.OpenAIClient`."""

    url: str

    def stream(self, request: CompletionRequest) -> Iterator[Chunk]:
        """The messages of an answer as they come."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a request ended: a record, or what failed, or neither if it was given up."""

    ask: Ask
    record: RequestRecord | None = None
    text: str = ""
    error: Exception | None = None


@dataclass(slots=True)
class _Answer:
    """What has arrived of an answer."""

    texts: list[str] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    finish_reason: str | None = None
    usage: Usage | None = None

    def add(self, chunk: Chunk) -> None:
        """Take in a message."""
        if chunk.text:
            self.texts.append(chunk.text)
            self.arrivals_s.append(chunk.at_s)
        if chunk.text or chunk.finish_reason:
            # a token that ends the text is counted, took a pass and has no text
            self.ended_s = chunk.at_s
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.usage = chunk.usage or self.usage


class ServerSide:
    """A server as a side.

    Args:
        name: of the side.
        client: speaks to the server.
        clock: what to time with.
        extra: further fields of each request, such as those that switch drafting off.
    """

    def __init__(self, name: str, client: Client, clock: Clock, extra: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._client = client
        self._clock = clock
        self._extra = dict(extra or {})

    def answer(
        self,
        feed: Feed,
        params: Callable[[Ask], SamplingParams],
        sampled: Collection[str],
        should_stop: Callable[[], bool],
        advance: Callable[[], object],
    ) -> Answers | None:
        """Answer all requests of a feed; see `headstart.measure.bench.run.Side`. Which tokens were guessed is not told.

        Raises:
            HeadstartError: the server fails, or counts no tokens.
        """
        outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        given_up = threading.Event()
        records: list[RequestRecord] = []
        num_active = 0
        failure: Exception | None = None
        before = read_counters(self._client.url)
        started_s = self._clock.now()
        while num_active or (feed and not given_up.is_set()):
            now_s = self._clock.now() - started_s
            if should_stop():
                given_up.set()
            while not given_up.is_set() and (due := feed.take(now_s, num_active)) is not None:
                came_s, ask = due
                request = self._request(ask, params(ask))
                arguments = (ask, request, now_s - came_s, outcomes, given_up)
                threading.Thread(target=self._ask, args=arguments, daemon=True).start()
                num_active += 1
            outcome = self._next(outcomes, feed, now_s, num_active)
            if outcome is None:
                continue
            num_active -= 1
            if outcome.error is not None:
                failure = failure or outcome.error
                given_up.set()
            elif outcome.record is not None and not given_up.is_set():
                records.append(outcome.record)
                follow_up = outcome.ask.follow_up(outcome.text)
                if follow_up is not None:
                    feed.add_follow_up(self._clock.now() - started_s, follow_up)
                advance()
        if failure is not None:
            raise failure
        if given_up.is_set():
            return None
        seconds = self._clock.now() - started_s
        after = None if before is None else read_counters(self._client.url)
        counters = None if before is None or after is None else after.since(before)
        return Answers(seconds=seconds, requests=tuple(records), counters=counters)

    def time_passes(self, num_sequences: int, context: int) -> Mapping[PassSize, float]:
        """Nothing: a server does not tell what its passes cost."""
        return {}

    def _next(
        self, outcomes: queue.SimpleQueue[_Outcome], feed: Feed, now_s: float, num_active: int
    ) -> _Outcome | None:
        """The next request that ended; `None` if it is time to look for something else."""
        due_s = feed.next_due_s()
        pause_s = _POLL_S if due_s is None else min(max(due_s - now_s, 0.0), _POLL_S)
        if not num_active:
            self._clock.wait(pause_s)
            return None
        try:
            return outcomes.get(timeout=max(pause_s, 1e-3))
        except queue.Empty:
            return None

    def _request(self, ask: Ask, params: SamplingParams) -> CompletionRequest:
        extra = {**self._extra, **({"ignore_eos": True} if params.ignore_eos else {})}
        return CompletionRequest(
            prompt=ask.raw_text,
            messages=None if ask.raw_text is not None else ask.messages,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            seed=params.seed if params.temperature > 0 else None,
            extra=extra,
        )

    def _ask(
        self,
        ask: Ask,
        request: CompletionRequest,
        waited_s: float,
        outcomes: queue.SimpleQueue[_Outcome],
        given_up: threading.Event,
    ) -> None:
        """Send one request and follow its answer; in a thread of its own."""
        answer = _Answer()
        try:
            for chunk in self._client.stream(request):
                if given_up.is_set():
                    outcomes.put(_Outcome(ask))
                    return
                answer.add(chunk)
            outcomes.put(_Outcome(ask, self._record(ask, answer, waited_s), "".join(answer.texts)))
        except Exception as error:  # raised again by whoever waits for it
            outcomes.put(_Outcome(ask, error=error))

    def _record(self, ask: Ask, answer: _Answer, waited_s: float) -> RequestRecord:
        if answer.usage is None:
            raise HeadstartError(
                f"{self._client.url} counts no tokens (usage is missing from its stream), and messages of a stream are "
                "not tokens. Switch usage on in the server, or use one that knows stream_options.include_usage."
            )
        return RequestRecord(
            name=ask.name,
            category=ask.prompt.category,
            prompt_tokens=answer.usage.prompt_tokens,
            num_tokens=answer.usage.completion_tokens,
            token_hash=hashlib.sha256("".join(answer.texts).encode("utf-8", "surrogatepass")).hexdigest(),
            finish_reason=answer.finish_reason or "unknown",
            first_s=waited_s + next(iter(answer.arrivals_s), answer.ended_s),
            end_s=waited_s + answer.ended_s,
            pauses_s=tuple(later - earlier for earlier, later in pairwise(answer.arrivals_s)),
        )


def token_counter(client: Client, longest: int) -> Callable[[Prompt], int]:
    """Estimates how many tokens a prompt has on a server, from the server's own counts of a short and a long text.

    Args:
        client: speaks to the server, which is asked twice.
        longest: tokens of the longest prompt that it will be asked, which is about as much as it must take here.

    Raises:
        HeadstartError: the server fails, or counts no tokens.
    """
    filler = Filler(0)
    short, long = filler.text(_SHORT), filler.text(max(2 * _SHORT, min(_LONG, longest // _TOKENS_OF_SENTENCE)))
    few = _count(client, short)
    per_character = (_count(client, long) - few) / (len(long) - len(short))
    frame = few - per_character * len(short)

    def count(prompt: Prompt) -> int:
        return round(frame + per_character * sum(len(content) for _, content in prompt.messages))

    return count


def _count(client: Client, text: str) -> int:
    answer = _Answer()
    for chunk in client.stream(CompletionRequest(messages=[{"role": "user", "content": text}], max_tokens=1)):
        answer.add(chunk)
    if answer.usage is None or not answer.usage.prompt_tokens:
        raise HeadstartError(
            f"{client.url} does not tell how many tokens a prompt has, so no context can be reached. Leave it out."
        )
    return answer.usage.prompt_tokens
