"""The client against a server that answers what each test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headstart.errors import CapacityError, ConfigError, HeadstartError, UnsupportedError
from headstart.measure.openai_client import CompletionRequest, OpenAIClient
from headstart.measure.openai_reply import ServerToken, Usage

REQUEST = CompletionRequest(prompt="ab", max_tokens=4, seed=7, stop=("x",), logprobs=2, extra={"ignore_eos": True})


class Scripted:
    """What to answer, and what was asked."""

    def __init__(self) -> None:
        self.status, self.content = 200, b""
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.url = ""

    def answer(self, document: object, status: int = 200) -> None:
        self.status, self.content = status, json.dumps(document).encode()

    def answer_stream(self, *messages: object, done: bool = True) -> None:
        lines = [f"data: {json.dumps(message)}\n\n" for message in messages] + ["data: [DONE]\n\n"] * done
        self.status, self.content = 200, ": a comment\n\n".join(["", *lines]).encode()


@pytest.fixture
def script() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            script.asked.append((self.path, body, self.headers.get("Authorization")))
            self.send_response(script.status)
            self.end_headers()
            self.wfile.write(script.content)

        do_GET = do_POST  # noqa: N815 - the name is http.server's

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield script
        server.shutdown()
        thread.join()


@pytest.fixture
def client(script: Scripted) -> OpenAIClient:
    ticks = iter(range(1000))
    return OpenAIClient(script.url + "/", model="m", api_key="k", clock=lambda: float(next(ticks)))


def choice(text: str, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"text": text, **fields}]}


def test_a_request_names_what_was_asked_and_nothing_else(script: Scripted, client: OpenAIClient) -> None:
    script.answer(choice("cd"))
    client.complete(REQUEST)
    client.complete(CompletionRequest(messages=[{"role": "user", "content": "q"}], max_tokens=1, logprobs=3))
    assert script.asked == [
        (
            "/v1/completions",
            {
                "model": "m", "prompt": "ab", "max_tokens": 4, "temperature": 0.0, "seed": 7, "stop": ["x"],
                "logprobs": 2, "ignore_eos": True,
            },
            "Bearer k",
        ),
        (
            "/v1/chat/completions",
            {
                "model": "m", "messages": [{"role": "user", "content": "q"}], "max_tokens": 1, "temperature": 0.0,
                "logprobs": True, "top_logprobs": 3,
            },
            "Bearer k",
        ),
    ]  # fmt: skip


def test_an_answer_in_one_piece(script: Scripted, client: OpenAIClient) -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 3}
    script.answer({**choice("cde", finish_reason="length"), "usage": usage})
    completion = client.complete(REQUEST)
    assert (completion.text, completion.finish_reason, completion.usage) == ("cde", "length", Usage(2, 3))
    assert completion.total_s == 1.0
    assert completion.tokens == completion.chunks == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"logprobs": {"tokens": ["c"], "token_logprobs": [-0.5], "top_logprobs": [{"d": -2.0, "c": -0.5}]}},
            ServerToken("c", None, -0.5, (("c", -0.5), ("d", -2.0))),
        ),
        (
            {"logprobs": {"tokens": ["token_id:9"], "token_logprobs": [None], "top_logprobs": None}},
            ServerToken("token_id:9", 9, None),
        ),
        (
            {
                "logprobs": {
                    "content": [
                        {"id": 5, "token": "c", "logprob": -1.0, "top_logprobs": [{"token": "c", "logprob": -1}]}
                    ]
                }
            },
            ServerToken("c", 5, -1.0, (("c", -1.0),)),
        ),
        ({"logprobs": {"tokens": ["c"], "token_logprobs": [-1]}, "token_ids": [4]}, ServerToken("c", 4, -1)),
        ({"token_ids": [4]}, ServerToken("", 4, None)),
        ({"logprobs": {"content": None, "refusal": None}, "token_ids": [4]}, ServerToken("", 4, None)),
    ],
)
def test_log_probabilities_in_the_layouts_of_several_servers(
    script: Scripted, client: OpenAIClient, fields: dict[str, Any], expected: ServerToken
) -> None:
    script.answer(choice("c", **fields))
    assert client.complete(REQUEST).tokens == (expected,)


def test_a_stream_is_its_messages_however_they_are_cut(script: Scripted, client: OpenAIClient) -> None:
    script.answer_stream(
        choice("cd", token_ids=[1, 2]),
        choice(""),
        choice("e", finish_reason="stop", token_ids=[3]),
        {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}},
    )
    completion = client.stream_whole(REQUEST)
    assert (completion.text, completion.finish_reason, completion.usage) == ("cde", "stop", Usage(2, 3))
    assert [token.token_id for token in completion.tokens] == [1, 2, 3]
    assert [chunk.at_s for chunk in completion.chunks] == [1.0, 2.0, 3.0, 4.0]
    assert script.asked[0][1]["stream_options"] == {"include_usage": True}


def test_a_stream_of_a_conversation_with_its_reasoning(script: Scripted, client: OpenAIClient) -> None:
    script.answer_stream(
        {"choices": [{"delta": {"role": "assistant", "content": None, "reasoning_content": "hm "}}]},
        {"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]},
    )
    request = CompletionRequest(messages=[{"role": "user", "content": "q"}], max_tokens=4)
    assert client.stream_whole(request).text == "hm yes"


@pytest.mark.parametrize(
    ("messages", "said"),
    [([choice("c")], "broke off"), ([choice("c"), {"error": {"message": "out of pages"}}], "out of pages")],
)
def test_a_stream_that_does_not_come_to_its_end(
    script: Scripted, client: OpenAIClient, messages: list[object], said: str
) -> None:
    script.answer_stream(*messages, done=False)
    with pytest.raises(HeadstartError, match=said):
        client.stream_whole(REQUEST)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, UnsupportedError), (404, UnsupportedError), (429, CapacityError), (500, HeadstartError)]
)
def test_a_refusal_is_told_in_the_servers_words(
    script: Scripted, client: OpenAIClient, status: int, kind: type[HeadstartError]
) -> None:
    script.answer({"error": {"message": "min_p is not served"}}, status)
    with pytest.raises(HeadstartError, match=f"{status}: min_p is not served") as raised:
        client.complete(REQUEST)
    assert type(raised.value) is kind


@pytest.mark.parametrize("document", [[1], {"choices": [3]}, {"choices": [{"text": "c", "logprobs": {"tokens": [1]}}]}])
def test_what_is_no_answer_is_refused(script: Scripted, client: OpenAIClient, document: object) -> None:
    script.answer(document)
    with pytest.raises(HeadstartError, match="address"):
        client.complete(REQUEST)


def test_no_json_is_refused(script: Scripted, client: OpenAIClient) -> None:
    script.content = b"<html>"
    with pytest.raises(HeadstartError, match="no JSON"):
        client.complete(REQUEST)


def test_the_first_model_is_taken_and_asked_for_once(script: Scripted) -> None:
    client = OpenAIClient(script.url)
    script.answer({"data": [{"id": "a"}, {"id": "b"}]})
    assert (client.model, client.model, len(script.asked)) == ("a", "a", 1)


@pytest.mark.parametrize(
    "url", ["host:8000/v1", "ftp://host/v1", "http://", "http://host:99999/v1", "http://[::1", "http://h/v1?a=1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        OpenAIClient(url)


def test_a_server_that_is_not_there(script: Scripted) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}/v1"
    with pytest.raises(HeadstartError, match="cannot be reached"):
        OpenAIClient(url).models()


def test_a_prompt_or_messages() -> None:
    with pytest.raises(ConfigError, match="either"):
        CompletionRequest(max_tokens=1)
