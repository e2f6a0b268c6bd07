from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headstart.errors import HeadstartError
from headstart.measure.bench import Clock, ServerSide, token_counter
from headstart.measure.bench.run import Answers
from headstart.measure.openai_client import CompletionRequest, OpenAIClient
from headstart.measure.openai_reply import Chunk, Usage
from headstart.measure.workload import Ask, ClosedLoop, Feed, OpenLoop, Prompt
from headstart.records import SamplingParams

PARAMS = SamplingParams(max_tokens=8, seed=7)


def asks(*names: str, **fields: Any) -> list[Ask]:
    return [Ask(prompt=Prompt(id=name, category="c", messages=(("user", f"Say {name}"),), **fields)) for name in names]


def answer(side: ServerSide, feed: Feed, params: SamplingParams = PARAMS) -> Answers:
    answers = side.answer(feed, lambda ask: params, (), lambda: False, lambda: None)
    assert answers is not None
    return answers


class ScriptedClient:
    """A server whose messages come at times that are written down."""

    url = "http://127.0.0.1:1/v1"  # where nobody is, whose counters are not to be had

    def __init__(self, script: Callable[[CompletionRequest], list[Chunk]]) -> None:
        self.script = script
        self.requests: list[CompletionRequest] = []

    def stream(self, request: CompletionRequest) -> Iterator[Chunk]:
        self.requests.append(request)
        yield from self.script(request)


def two_messages(request: CompletionRequest) -> list[Chunk]:
    return [
        Chunk(0.25),  # a role and no text
        Chunk(0.5, "several tokens in one"),
        Chunk(1.75, " message", finish_reason="length"),
        Chunk(2.0, usage=Usage(11, 8)),
    ]


def test_tokens_are_the_servers_count_and_messages_are_only_arrivals() -> None:
    client = ScriptedClient(two_messages)
    (request,) = answer(ServerSide("drafting", client, Clock()), Feed(asks("a"), ClosedLoop(1))).requests
    assert (request.num_tokens, request.prompt_tokens, request.finish_reason) == (8, 11, "length")
    assert request.pauses_s == (1.25,)
    assert request.writing_s == pytest.approx(1.25)  # not to the usage, which comes after the text
    assert 0.5 <= request.first_s < 1.0
    assert request.acceptance is None


def test_a_token_without_text_that_ends_the_answer_takes_its_time() -> None:
    def script(request: CompletionRequest) -> list[Chunk]:
        return [Chunk(0.5, "words"), Chunk(0.75, "", finish_reason="stop"), Chunk(2.0, usage=Usage(11, 2))]

    (request,) = answer(ServerSide("s", ScriptedClient(script), Clock()), Feed(asks("a"), ClosedLoop(1))).requests
    assert request.writing_s == pytest.approx(0.25)  # of two tokens, of which only one is seen
    assert request.pauses_s == ()


def test_what_is_asked() -> None:
    client = ScriptedClient(two_messages)
    side = ServerSide("none", client, Clock(), {"speculative": None})
    answer(side, Feed(asks("a"), ClosedLoop(1)))
    answer(side, Feed(asks("b", raw=True), ClosedLoop(1)), SamplingParams(max_tokens=4, temperature=0.5, seed=3))
    answer(side, Feed(asks("c"), ClosedLoop(1)), SamplingParams(max_tokens=4, ignore_eos=True))
    greedy, sampled, endless = client.requests
    assert greedy.messages == [{"role": "user", "content": "Say a"}]
    assert (greedy.max_tokens, greedy.temperature, greedy.seed) == (8, 0.0, None)
    assert greedy.extra == {"speculative": None}
    assert (sampled.prompt, sampled.messages, sampled.temperature, sampled.seed) == ("Say b", None, 0.5, 3)
    assert endless.extra == {"speculative": None, "ignore_eos": True}


def test_other_texts_have_other_hashes() -> None:
    def script(request: CompletionRequest) -> list[Chunk]:
        text = str(request.messages)
        return [Chunk(0.1, text[:10]), Chunk(0.2, text[10:], finish_reason="stop", usage=Usage(1, 2))]

    side = ServerSide("s", ScriptedClient(script), Clock())
    first, second = (answer(side, Feed(asks("a", "b"), ClosedLoop(1))).requests for _ in range(2))
    assert [request.token_hash for request in first] == [request.token_hash for request in second]
    assert first[0].token_hash != first[1].token_hash


def test_a_closed_loop_holds_so_many_requests_open() -> None:
    open_now: list[int] = []
    lock = threading.Lock()
    both = threading.Barrier(2, timeout=10)
    active = 0

    def script(request: CompletionRequest) -> list[Chunk]:
        nonlocal active
        with lock:
            active += 1
            open_now.append(active)
        both.wait()  # ends only if two are open
        with lock:
            active -= 1
        return two_messages(request)

    answers = answer(ServerSide("s", ScriptedClient(script), Clock()), Feed(asks("a", "b", "c", "d"), ClosedLoop(2)))
    assert {request.name for request in answers.requests} == {"a", "b", "c", "d"}
    assert max(open_now) == 2


def test_an_open_loop_sends_when_requests_come() -> None:
    time_s = [0.0]

    def wait(seconds: float) -> None:
        time_s[0] += seconds

    client = ScriptedClient(two_messages)
    load = OpenLoop(0.5, seed=1)
    side = ServerSide("s", client, Clock(lambda: time_s[0], wait))
    answers = answer(side, Feed(asks("a", "b"), load))
    assert time_s[0] >= load.times_s(2)[1]
    assert len(answers.requests) == 2


def test_follow_ups_carry_the_servers_answer() -> None:
    client = ScriptedClient(two_messages)
    answers = answer(ServerSide("s", client, Clock()), Feed(asks("a", follow_ups=("more",)), ClosedLoop(1)))
    assert [request.name for request in answers.requests] == ["a", "a, turn 2"]
    messages = client.requests[1].messages
    assert messages is not None
    assert [message["content"] for message in messages] == ["Say a", "several tokens in one message", "more"]


def test_a_server_that_counts_no_tokens_is_refused() -> None:
    side = ServerSide("s", ScriptedClient(lambda request: two_messages(request)[:-1]), Clock())
    with pytest.raises(HeadstartError, match="messages of a stream are not tokens"):
        answer(side, Feed(asks("a"), ClosedLoop(1)))


def test_it_can_be_stopped() -> None:
    entered, leave = threading.Event(), threading.Event()

    def script(request: CompletionRequest) -> list[Chunk]:
        entered.set()
        leave.wait(10)
        return two_messages(request)

    def should_stop() -> bool:
        if entered.is_set():
            leave.set()
        return entered.is_set()

    side = ServerSide("s", ScriptedClient(script), Clock())
    assert side.answer(Feed(asks("a", "b"), ClosedLoop(1)), lambda ask: PARAMS, (), should_stop, lambda: None) is None


def test_lengths_are_estimated_by_the_servers_own_counts() -> None:
    def script(request: CompletionRequest) -> list[Chunk]:
        assert request.messages is not None
        length = sum(len(message["content"]) for message in request.messages)
        return [Chunk(0.1, "x", finish_reason="length", usage=Usage(20 + length // 4, 1))]

    prompt = Prompt(id="a", category="c", messages=(("user", "x" * 4000),))
    for longest in (300, 1000, 6000):
        assert token_counter(ScriptedClient(script), longest)(prompt) == pytest.approx(1020, abs=5)


@pytest.mark.parametrize("longest", [200, 1000])
def test_a_server_is_asked_for_no_longer_prompt_than_it_will_be(longest: int) -> None:
    def script(request: CompletionRequest) -> list[Chunk]:
        assert request.messages is not None
        num_tokens = 30 + sum(len(message["content"]) for message in request.messages) // 4
        if num_tokens > longest:
            raise HeadstartError(f"{num_tokens} tokens are too many")
        return [Chunk(0.1, "x", finish_reason="length", usage=Usage(num_tokens, 1))]

    token_counter(ScriptedClient(script), longest)


@contextmanager
def served(events: list[str]) -> Iterator[str]:
    """A server that answers each request with the same events, as they are written here."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(f"data: {event}\n\n" for event in events).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with listening(Handler) as url:
        yield url


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_a_servers_own_counters_stand_beside_usage() -> None:
    written = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"vllm:generation_tokens_total {1000 + written}\n".encode())

        def do_POST(self) -> None:
            nonlocal written
            written += 9
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"data: {message('x', finish_reason='stop')}\n\ndata: {USAGE}\n\n".encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with listening(Handler) as url:
        answers = answer(ServerSide("s", OpenAIClient(url, model="m"), Clock()), Feed(asks("a", "b"), ClosedLoop(1)))
    assert answers.counters is not None
    assert answers.counters.tokens == sum(request.num_tokens for request in answers.requests) == 18


def message(text: str, **fields: Any) -> str:
    return json.dumps({"choices": [{"delta": {"content": text}, **fields}]})


USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 9}})


@pytest.mark.parametrize(
    "events",
    [
        [message("one token"), message(" each", finish_reason="length"), USAGE, "[DONE]"],
        [message("nine tokens at once", finish_reason="length"), USAGE, "[DONE]"],
        [message("") for _ in range(30)] + [message("x", finish_reason="stop"), USAGE, "[DONE]"],
    ],
)
def test_over_http_the_number_of_messages_does_not_matter(events: list[str]) -> None:
    with served(events) as url:
        side = ServerSide("s", OpenAIClient(url, model="m"), Clock())
        answers = answer(side, Feed(asks("a", "b"), ClosedLoop(2)))
    assert [request.num_tokens for request in answers.requests] == [9, 9]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([message("half"), '{"error": {"message": "out of memory"}}'], "out of memory"),
        ([message("half")], "broke off"),
        ([message("whole", finish_reason="stop"), "[DONE]"], "counts no tokens"),
    ],
)
def test_over_http_failures_end_the_run_with_what_the_server_said(events: list[str], told: str) -> None:
    with served(events) as url:
        side = ServerSide("s", OpenAIClient(url, model="m"), Clock())
        with pytest.raises(HeadstartError, match=told):
            answer(side, Feed(asks("a", "b", "c"), ClosedLoop(2)))
