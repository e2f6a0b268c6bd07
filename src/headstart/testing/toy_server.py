"""An OpenAI-compatible server over a toy writer, on a port of this machine: for tests of what speaks to servers.

It is honest, or has one fault; those of the writer are in `headstart.testing.speculative_toy`.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol, get_args

import numpy as np

from headstart.engine.text import Tokenizer
from headstart.runtime.protocol import Trunk
from headstart.testing.byte_tokenizer import ByteTokenizer
from headstart.testing.speculative_toy import SpeculativeToy, WriterFault, WrittenToken
from headstart.testing.toy_engine import ALPHABET, VOCAB_SIZE, make_similar_trunk
from headstart.testing.toy_trunk import ToyTrunk

ServerFault = WriterFault | Literal["stop string missed", "seed shared", "seed shared at once", "wrong token count"]

_MODEL = "toy"
_MAX_CONTEXT = 504
_TOGETHER_S = 0.05
_ENVELOPE = {"id": "cmpl", "object": "text_completion", "model": _MODEL}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyServerConfig:
    """What the server is like.

    Attributes:
        fault: what is wrong with it.
        tells_ids: whether it answers `return_token_ids`.
        tells_logprobs: whether it takes `logprobs`; it refuses them otherwise.
        logit_error: see `SpeculativeToy`.
        seed: of requests without one.
        drafts: whether it guesses; without, the faults of drafting do not show.
        tells_counters: whether it counts drafts at `/metrics`, under vLLM's names.
    """

    fault: ServerFault | None = None
    tells_ids: bool = True
    tells_logprobs: bool = True
    logit_error: float = 0.0
    seed: int = 0
    drafts: bool = True
    tells_counters: bool = False


class ServedTokenizer(Tokenizer, Protocol):
    """What the server asks of a tokenizer."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of some ids."""


@contextmanager
def serve_toy(
    config: ToyServerConfig | None = None,
    *,
    trunk: Trunk | None = None,
    draft_trunk: Trunk | None = None,
    tokenizer: ServedTokenizer | None = None,
) -> Iterator[str]:
    """Run a server.

    Args:
        config: what it is like; honest by default.
        trunk: the model; the usual toy by default.
        draft_trunk: what guesses, of the same vocabulary.
        tokenizer: the vocabulary.

    Yields:
        The address where its API begins.
    """
    service = _ToyService(
        config or ToyServerConfig(),
        trunk or ToyTrunk(VOCAB_SIZE),
        draft_trunk or make_similar_trunk(),
        tokenizer or ByteTokenizer(ALPHABET),
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(service)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


class _ToyService:
    """Answers requests, one at a time."""

    def __init__(self, config: ToyServerConfig, trunk: Trunk, draft_trunk: Trunk, tokenizer: ServedTokenizer) -> None:
        self._config = config
        fault = config.fault if config.fault in get_args(WriterFault) else None
        self._writer = SpeculativeToy(
            trunk,
            draft_trunk,
            max_context=min(trunk.max_context - 8, _MAX_CONTEXT),
            num_drafts=4 if config.drafts else 0,
            fault=fault,  # type: ignore[arg-type] # it is among these
            logit_error=config.logit_error,
        )
        self._tokenizer = tokenizer
        self._seeds = random.Random(config.seed)
        self._lock = threading.Lock()
        self._waiting = threading.Condition()
        self._in_flight: list[int] = []
        self._first_seed: int | None = None
        self._num_written = 0
        self._name = cache(self._written_name)

    def complete(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The answer as the messages of a stream, one a round."""
        seed = self._seed(body.get("seed"))
        try:
            with self._lock:
                return list(self._messages(body, seed))
        finally:
            with self._waiting:
                self._in_flight.pop(0)

    def _seed(self, asked: int | None) -> int:
        with self._waiting:
            seed = self._seeds.getrandbits(31) if asked is None else asked
            if self._config.fault == "seed shared":
                self._first_seed = seed = seed if self._first_seed is None else self._first_seed
            if self._config.fault == "seed shared at once" and self._in_flight:
                seed = self._in_flight[0]
            self._in_flight.append(seed)
            if self._config.fault == "seed shared at once":
                # an answer takes so little time that requests sent together might miss each other
                self._waiting.notify_all()
                self._waiting.wait_for(lambda: len(self._in_flight) > 1, timeout=_TOGETHER_S)
            return seed

    def _messages(self, body: Mapping[str, Any], seed: int) -> Iterator[dict[str, Any]]:
        asked = body["prompt"]
        prompt = self._tokenizer.encode(asked) if isinstance(asked, str) else asked
        rounds, text, reason = self._rounds(prompt, body, seed)
        shown = 0
        for number, (kept, end) in enumerate(rounds):
            is_last = number == len(rounds) - 1
            # a stop string may have begun in an earlier round: what is sent is cut from the final text
            choice = {"index": 0, "text": text[shown : None if is_last else end], **self._account(kept, body)}
            shown = end
            yield {**_ENVELOPE, "choices": [{**choice, "finish_reason": reason if is_last else None}]}
        count = sum(len(kept) for kept, _ in rounds) + (self._config.fault == "wrong token count")
        self._num_written += count
        usage = {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}
        yield {**_ENVELOPE, "choices": [], "usage": usage}

    def _rounds(
        self, prompt: list[int], body: Mapping[str, Any], seed: int
    ) -> tuple[list[tuple[list[WrittenToken], int]], str, str]:
        """Write to the end.

        Returns:
            The tokens of each round with the length of the text after it, the text, and why it ended.
        """
        stops, max_tokens = body.get("stop", []), body["max_tokens"]
        misses_stops = self._config.fault == "stop string missed"
        stream = self._tokenizer.stream()
        rounds: list[tuple[list[WrittenToken], int]] = []
        text, num_written = "", 0
        for written in self._writer.write(
            prompt, temperature=body.get("temperature", 1.0), random_source=random.Random(seed)
        ):
            kept: list[WrittenToken] = []
            rounds.append((kept, len(text)))
            for token in written:
                kept.append(token)
                num_written += 1
                text += stream.push([token.token])
                rounds[-1] = (kept, len(text))
                found = [text.index(stop) for stop in stops if stop in text]
                if token.token in self._tokenizer.end_ids:
                    return rounds, text, "stop"
                if found and (not misses_stops or (token is written[-1] and text.endswith(tuple(stops)))):
                    return rounds, text[: min(found)], "stop"
                if num_written == max_tokens:
                    return rounds, text + stream.finish(), "length"
        raise AssertionError("a writer goes on for ever")

    def _account(self, kept: list[WrittenToken], body: Mapping[str, Any]) -> dict[str, Any]:
        account: dict[str, Any] = {"logprobs": None}
        num_top = body.get("logprobs")
        if num_top is not None:
            account["logprobs"] = {
                "tokens": [self._name(written.token) for written in kept],
                "token_logprobs": [float(written.log_probabilities[written.token]) for written in kept],
                "top_logprobs": [
                    {
                        self._name(int(token)): float(written.log_probabilities[token])
                        for token in np.argsort(-written.log_probabilities, kind="stable")[:num_top]
                    }
                    for written in kept
                ],
            }
        if body.get("return_token_ids") and self._config.tells_ids:
            account["token_ids"] = [written.token for written in kept]
        return account

    def _written_name(self, token: int) -> str:
        return "<end>" if token in self._tokenizer.end_ids else self._tokenizer.decode([token])

    def metrics(self) -> str | None:
        """What it counts, in Prometheus' text form; `None` if it does not tell."""
        if not self._config.tells_counters:
            return None
        counts = {
            "vllm:generation_tokens_total": self._num_written,
            "vllm:spec_decode_num_draft_tokens_total": self._writer.num_drafted,
            "vllm:spec_decode_num_accepted_tokens_total": self._writer.num_accepted,
        }
        return "".join(f"{name} {count}\n" for name, count in counts.items())

    def refusal(self, body: Mapping[str, Any]) -> str | None:
        """Why a request is not served, if it is not."""
        if body.get("logprobs") is not None and not self._config.tells_logprobs:
            return "logprobs are not served"
        return None


def joined(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The messages of a stream as one answer."""
    choices = [message["choices"][0] for message in messages if message["choices"]]
    answer = {"index": 0, "text": "".join(choice["text"] for choice in choices), "logprobs": None}
    answer["finish_reason"] = choices[-1]["finish_reason"]
    if choices[0]["logprobs"] is not None:
        answer["logprobs"] = {
            name: [entry for choice in choices for entry in choice["logprobs"][name]] for name in choices[0]["logprobs"]
        }
    if "token_ids" in choices[0]:
        answer["token_ids"] = [token for choice in choices for token in choice["token_ids"]]
    return {**messages[-1], "choices": [answer]}


def _make_handler(service: _ToyService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self._send(200, {"object": "list", "data": [{"id": _MODEL, "object": "model"}]})
            elif (metrics := service.metrics()) is not None:
                self._begin(200, "text/plain")
                self.wfile.write(metrics.encode())
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            refusal = service.refusal(body)
            if refusal is not None:
                self._send(400, {"error": {"message": refusal}})
                return
            messages = service.complete(body)
            if not body.get("stream"):
                self._send(200, joined(messages))
                return
            self._begin(200, "text/event-stream")
            for message in messages:
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, status: int, document: object) -> None:
            self._begin(status, "application/json")
            self.wfile.write(json.dumps(document).encode())

        def _begin(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass  # tests are quiet

    return Handler
