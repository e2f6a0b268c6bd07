"""A server's counters beside what the bench says of it, with a server that only pretends to write."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import server_counters
from headstart.measure.bench import Turn
from headstart.measure.bench.records import RequestRecord
from headstart.measure.bench.server_counters import ServerCounters
from server_counters import Observed, Row, compare_cell, main

CELL: dict[str, Any] = {"key": "1 at once", "load": {"kind": "closed", "concurrency": 1}, "context": None}

# three rounds, of one token, of three, and of three again, the last of which comes after the end and is not written
USAGE = {"prompt_tokens": 7, "completion_tokens": 6}
MESSAGES = [
    {"choices": [{"delta": {"content": "first"}}]},
    {"choices": [{"delta": {"content": " three more"}}]},
    {"choices": [{"delta": {"content": " the last"}, "finish_reason": "length"}]},
    {"choices": [], "usage": USAGE},
]


@contextmanager
def fake_vllm(*, counted_tokens: int = 6, has_metrics: bool = True) -> Iterator[str]:
    """A server with vLLM's names, which counts so many tokens for each answer of six."""
    served = 0
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._send(metrics(served, counted_tokens) if has_metrics else "")
            else:
                self._send(json.dumps({"data": [{"id": "fake"}]}))

        def do_POST(self) -> None:
            nonlocal served
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                served += 1
            self._send("".join(f"data: {json.dumps(message)}\n\n" for message in MESSAGES))

        def _send(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def metrics(served: int, counted_tokens: int) -> str:
    values = {
        "generation_tokens_total": counted_tokens,
        "prompt_tokens_total": 7,
        "e2e_request_latency_seconds_count": 1,
        "e2e_request_latency_seconds_sum": 0.5,
        "time_to_first_token_seconds_count": 1,
        "time_to_first_token_seconds_sum": 0.25,
        "inter_token_latency_seconds_count": 2,
        "spec_decode_num_drafts_total": 2,
        "spec_decode_num_draft_tokens_total": 4,
        "spec_decode_num_accepted_tokens_total": 4,
    }
    # what was counted before anyone asked must not matter
    return "".join(f'vllm:{name}{{engine="0"}} {100 + served * value}\n' for name, value in values.items())


@pytest.fixture
def any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pretended answer takes no time, so speeds mean nothing."""
    monkeypatch.setattr(server_counters, "SPEED_TOLERANCE", math.inf)


def rows_by_name(cell: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {row["name"]: (row["bench"], row["server"]) for row in cell["rows"]}


@pytest.mark.usefixtures("any_speed")
def test_both_accounts_of_the_same_span(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_vllm() as url:
        assert main(["--url", url, "--batch", "1,2", "--limit", "3", "--json"]) == 0
    text, document = capsys.readouterr().out.rsplit("\n", 2)[:2]
    found = json.loads(document)
    assert found["agrees"] is True
    assert [cell["cell"] for cell in found["cells"]] == ["1 at once", "2 at once"]
    assert "All agree." in text
    # three prompts at one at a time; at two, four requests so that both users have two
    for cell, count in zip(found["cells"], (3, 4), strict=True):
        rows = rows_by_name(cell)
        assert rows["requests"] == (count, count)
        assert rows["tokens of prompts"] == (7 * count, 7 * count)
        assert rows["tokens written"] == (6 * count, 6 * count)
        assert rows["guesses kept"] == (4 * count, 4 * count)
        assert rows["tokens a round"] == pytest.approx((2.0, 2.0))
        assert rows["arrivals of text / rounds"] == (3 * count, 3 * count)


@pytest.mark.usefixtures("any_speed")
def test_one_token_that_only_one_of_them_counted_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_vllm(counted_tokens=7) as url:
        assert main(["--url", url, "--batch", "1", "--limit", "1"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("too far")]
    assert [line.split("  ")[0] for line in lines] == ["tokens written"]


def test_a_server_without_vllms_counters_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_vllm(has_metrics=False) as url:
        assert main(["--url", url]) == 1
    assert "publishes none of vLLM's counters" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value"), [("--batch", "1,x"), ("--limit", "0")])
def test_wrong_usage(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1/v1", flag, value]) == 2
    assert f"{flag} " in capsys.readouterr().err


@pytest.mark.parametrize(("server_s", "agrees"), [(2.0, True), (2.09, True), (2.2, False), (1.8, False)])
def test_a_speed_agrees_within_a_twentieth(server_s: float, agrees: bool) -> None:
    rows = {row.name: row for row in compare_cell(CELL, observed(seconds=2.0, server_s=server_s))}
    assert rows["tokens/s of a request"].bench == pytest.approx(10.0)
    assert rows["tokens/s of a request"].server == pytest.approx(20 / server_s)
    assert rows["tokens/s of a request"].agrees == agrees
    assert rows["tokens/s in all"].agrees
    apart = {row.name: row for row in compare_cell(CELL, observed(seconds=server_s, server_s=2.0))}
    assert apart["tokens/s in all"].agrees == agrees


def observed(*, seconds: float, server_s: float) -> Observed:
    """Twenty tokens that took the bench two seconds."""
    request = RequestRecord(
        name="a", category="c", prompt_tokens=7, num_tokens=20, token_hash="", finish_reason="length",
        first_s=0.5, end_s=2.0, pauses_s=(),
    )  # fmt: skip
    turn = Turn(
        cell=CELL["key"], side="server", repeat=0, group="c", seconds=2.0, requests=(request,),
        counters=ServerCounters(tokens=20),
    )  # fmt: skip
    totals = {
        "vllm:generation_tokens_total": 20.0,
        "vllm:prompt_tokens_total": 7.0,
        "vllm:e2e_request_latency_seconds_count": 1.0,
        "vllm:e2e_request_latency_seconds_sum": server_s,
        "vllm:time_to_first_token_seconds_sum": 0.5,
    }
    return Observed(turns=(turn,), seconds=seconds, totals=totals)


def test_what_a_server_did_not_count_is_no_agreement() -> None:
    assert not Row(name="tokens", bench=3, server=0, tolerance=0.0).agrees
    assert Row(name="tokens", bench=0, server=0, tolerance=0.0).agrees
    assert Row(name="shown only", bench=3, server=0, tolerance=None).agrees
