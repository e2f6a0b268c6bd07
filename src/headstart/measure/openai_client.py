"""A client for OpenAI-compatible servers: one request, answered whole or as a stream.

It knows HTTP and what requests look like, nothing of models or of what is measured. Each request has a connection of
its own, so one client serves any number of threads. Proxies of the environment are not used: what is measured is the
server at the address that was given.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headstart.errors import CapacityError, ConfigError, HeadstartError, UnsupportedError
from headstart.measure.openai_reply import Chunk, ServerCompletion, error_text, join_chunks, read_chunk, read_completion

_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
_OVERLOADED = (429, 503)
_DONE = "[DONE]"


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """What to ask of a server. `None` leaves a setting to the server.

    Attributes:
        prompt: a text or token ids, for `/completions`.
        messages: a conversation, for `/chat/completions`; instead of a prompt.
        max_tokens: tokens to write at most.
        temperature: 0 is greedy.
        seed: of the sampling.
        stop: texts that end the answer.
        logprobs: tell log-probabilities of the written tokens and of so many of the likeliest.
        extra: further fields of the request, such as `ignore_eos`.
    """

    prompt: str | Sequence[int] | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ConfigError("A request has either a prompt or messages. Give one of them.")

    @property
    def endpoint(self) -> str:
        """Where it is sent."""
        return "/completions" if self.messages is None else "/chat/completions"

    def body(self, model: str) -> dict[str, Any]:
        """The JSON object that is sent."""
        body: dict[str, Any] = {"model": model, "max_tokens": self.max_tokens, "temperature": self.temperature}
        if self.messages is None:
            body["prompt"] = self.prompt if isinstance(self.prompt, str) else list(self.prompt or ())
        else:
            body["messages"] = [dict(message) for message in self.messages]
        if self.seed is not None:
            body["seed"] = self.seed
        if self.stop:
            body["stop"] = list(self.stop)
        if self.logprobs is not None:
            is_chat = self.messages is not None
            body |= {"logprobs": True, "top_logprobs": self.logprobs} if is_chat else {"logprobs": self.logprobs}
        return {**body, **self.extra}


class OpenAIClient:
    """Speaks to one server.

    Example:
        >>> client = OpenAIClient("http://localhost:8000/v1")
        >>> client.complete(CompletionRequest(prompt="Once upon", max_tokens=8)).text
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Remember where the server is; nothing is sent yet.

        Args:
            url: where its API begins, such as "http://host:8000/v1".
            model: which of its models; by default the first that it lists.
            api_key: sent as a bearer token.
            timeout_s: seconds to wait for the next piece of an answer.
            clock: seconds, for `Chunk.at_s` and `ServerCompletion.total_s`.

        Raises:
            ConfigError: the address is none.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # such as a port above 65535, or half an IPv6 address
            raise ConfigError(f"{url}: {error}. An address is such as http://host:8000/v1.") from error
        if parts.scheme not in _CONNECTIONS or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(
                f"{url!r} is no server's address. It must be such as http://host:8000/v1 or https://host/v1."
            )
        self.url = url.rstrip("/")
        self._scheme, self._host, self._port, self._path = parts.scheme, parts.hostname, port, parts.path.rstrip("/")
        self._model = model
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._clock = clock

    @property
    def model(self) -> str:
        """The model that requests name; the server is asked for its first one if none was given.

        Raises:
            HeadstartError: the server cannot be reached, or lists none.
        """
        if self._model is None:
            listed = self.models()
            if not listed:
                raise HeadstartError(f"{self.url} lists no model. Name one.")
            self._model = listed[0]
        return self._model

    def models(self) -> tuple[str, ...]:
        """The names of the server's models.

        Raises:
            HeadstartError: as for `complete`.
        """
        with self._request("GET", "/models") as response:
            listing = self._json(response.read())
        entries = listing.get("data") if isinstance(listing, dict) else None
        if not isinstance(entries, list):
            raise HeadstartError(f"{self.url}/models gives no list of models: {listing!r:.200}. Check the address.")
        return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry)

    def complete(self, request: CompletionRequest) -> ServerCompletion:
        """Ask, and wait for the whole answer.

        Raises:
            UnsupportedError: the server refuses the request.
            CapacityError: it is overloaded.
            HeadstartError: it cannot be reached, fails, or answers in another form.
        """
        body = request.body(self.model)
        started = self._clock()
        with self._request("POST", request.endpoint, body) as response:
            reply = self._json(response.read())
        return read_completion(reply, self._clock() - started)

    def stream(self, request: CompletionRequest) -> Iterator[Chunk]:
        """Ask, and yield the messages of the answer as they come. Closing the iterator hangs up.

        Raises:
            HeadstartError: as for `complete`; also if the stream breaks off.
        """
        body = request.body(self.model) | {"stream": True, "stream_options": {"include_usage": True}}
        started = self._clock()
        finished = False
        with self._request("POST", request.endpoint, body) as response:
            for data in _event_data(response):
                at_s = self._clock() - started
                if data == _DONE:
                    return
                chunk = read_chunk(self._json(data), at_s)
                finished = finished or chunk.finish_reason is not None
                yield chunk
        if not finished:
            raise HeadstartError(f"{self.url}: the stream broke off before the answer's end. Look into its log.")

    def stream_whole(self, request: CompletionRequest) -> ServerCompletion:
        """Ask for a stream, and put it together. Errors are those of `stream`."""
        return join_chunks(self.stream(request))

    @contextmanager
    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Send, and give the answer if it is one of success."""
        connection = _CONNECTIONS[self._scheme](self._host, self._port, timeout=self._timeout_s)
        try:
            content = None if body is None else json.dumps(body, allow_nan=False).encode()
            connection.request(method, self._path + path, content, self._headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise self._refusal(response)
            yield response
        except TimeoutError as error:
            raise HeadstartError(
                f"{self.url}: no answer came within {self._timeout_s:g} s. See whether it is at work, or wait longer."
            ) from error
        except http.client.HTTPException as error:
            raise HeadstartError(
                f"{self.url}: the answer broke off or is no HTTP ({type(error).__name__}: {error}). Look into its log."
            ) from error
        except OSError as error:
            raise HeadstartError(
                f"{self.url} cannot be reached ({error}). Check the address, and that the server runs."
            ) from error
        finally:
            connection.close()

    def _refusal(self, response: http.client.HTTPResponse) -> HeadstartError:
        raw = response.read().decode(errors="replace")
        try:
            reason = error_text(json.loads(raw))
        except ValueError:
            reason = raw[:300] or response.reason
        text = f"{self.url} answered {response.status}: {reason.rstrip('.')}."
        if response.status in _OVERLOADED:
            return CapacityError(f"{text} Send fewer requests at once, or wait.")
        if 400 <= response.status < 500:
            return UnsupportedError(f"{text} Check address, model, key, and that the server knows what was asked for.")
        return HeadstartError(f"{text} Look into the server's log.")

    def _json(self, raw: bytes | str) -> Any:
        try:
            return json.loads(raw)
        except ValueError as error:
            raise HeadstartError(
                f"{self.url} answered with something that is no JSON: {raw[:200]!r}. Check the address."
            ) from error


def _event_data(response: http.client.HTTPResponse) -> Iterator[str]:
    """The data of each server-sent event; an event may have several lines of it."""
    lines: list[str] = []
    for raw in response:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)
