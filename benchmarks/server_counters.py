"""What `headstart bench --url` says of a vLLM server, beside what that server says of itself over the same span.

    python benchmarks/server_counters.py --url http://localhost:8000/v1 --batch 1,4

Nobody else may ask the server meanwhile, as all requests go into its counters. Counts must be equal and speeds agree
within 5 %, or the exit status is 1. No other server's counters tell enough for this.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from typing import Any

import cyclopts

from headstart import __version__
from headstart.errors import ConfigError, HeadstartError, UnsupportedError
from headstart.measure.bench import BenchSettings, Cell, Clock, FilledCell, ServerSide, Turn, fill_cells
from headstart.measure.bench.server_counters import parse_totals, read_metrics
from headstart.measure.machine import describe_machine
from headstart.measure.openai_client import OpenAIClient
from headstart.measure.report.figures import SideFigures, cell_figures
from headstart.measure.workload import ClosedLoop, Feed, Prompt, shipped_prompts, take_evenly

SPEED_TOLERANCE = 0.05
SIDE = "server"
ROW = "{:<38}{:>12}{:>12}{:>9}"

TOKENS = "vllm:generation_tokens_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
REQUESTS_S = "vllm:e2e_request_latency_seconds"
FIRST_TOKENS_S = "vllm:time_to_first_token_seconds"
LATER_ROUNDS_S = "vllm:inter_token_latency_seconds"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"

app = cyclopts.App(name="server_counters", help=__doc__, help_format="plaintext")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure by both.

    Attributes:
        name: as it is printed, with its unit.
        bench: what the bench says.
        server: what the server's counters say.
        tolerance: by which share the bench's may differ; `None` if it is only shown.
    """

    name: str
    bench: float
    server: float
    tolerance: float | None

    @property
    def difference(self) -> float:
        """The bench's figure over the server's, less one."""
        return 0.0 if self.bench == self.server else self.bench / self.server - 1 if self.server else float("inf")

    @property
    def agrees(self) -> bool:
        """Whether they are as near as they must be."""
        return self.tolerance is None or abs(self.difference) <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A cell as the bench measured it, and what the server counted meanwhile.

    Attributes:
        turns: as the bench keeps them.
        seconds: of those turns, between two looks at the counters.
        totals: by how much each of the server's values grew between them.
    """

    turns: Sequence[Turn]
    seconds: float
    totals: Mapping[str, float]


def observe(client: OpenAIClient, filled: FilledCell, settings: BenchSettings, clock: Clock) -> Observed:
    """Take the turns of a cell once, after a warm-up, as `headstart bench` does.

    Raises:
        HeadstartError: the server fails, or publishes none of vLLM's counters.
    """
    side = ServerSide(SIDE, client, clock)
    turns: list[Turn] = []
    seconds = 0.0
    totals: Counter[str] = Counter()
    groups = list(filled.groups().items())
    load = filled.cell.load
    _answer(side, Feed(groups[0][1][:2], load), settings)
    for group, asks in groups:
        before = totals_of(client.url)
        started_s = clock.now()
        turns.append(_answer(side, Feed(asks, load), settings, filled.cell.key, group))
        seconds += clock.now() - started_s
        after = totals_of(client.url)
        totals.update({name: value - before.get(name, 0.0) for name, value in after.items()})
    return Observed(turns=turns, seconds=seconds, totals=totals)


def totals_of(url: str) -> dict[str, float]:
    """The server's values by name.

    Raises:
        UnsupportedError: it publishes none of vLLM's.
    """
    totals = parse_totals(read_metrics(url) or "")
    if TOKENS not in totals:
        raise UnsupportedError(
            f"{url} publishes none of vLLM's counters at /metrics. Name a vLLM server that runs with its statistics on."
        )
    return totals


def _answer(side: ServerSide, feed: Feed, settings: BenchSettings, cell: str = "", group: str = "") -> Turn:
    answers = side.answer(feed, lambda ask: settings.params(ask.name), (), lambda: False, lambda: None)
    assert answers is not None  # nobody stops it
    return Turn(
        cell=cell,
        side=SIDE,
        repeat=0,
        group=group,
        seconds=answers.seconds,
        requests=answers.requests,
        counters=answers.counters,
    )


def compare_cell(cell: Mapping[str, Any], observed: Observed) -> list[Row]:
    """What the bench's report has of a cell, and what the counters come to.

    Args:
        cell: as in the settings' document.
        observed: its turns.
    """
    (figures,) = cell_figures(cell, (SIDE,), observed.turns, ()).sides
    requests = [request for turn in observed.turns for request in turn.requests]
    totals = observed.totals
    tokens = sum(request.num_tokens for request in requests)
    num_requests = totals[f"{REQUESTS_S}_count"]
    return [
        Row(name="requests", bench=figures.num_requests, server=num_requests, tolerance=0.0),
        Row(
            name="tokens of prompts",
            bench=sum(request.prompt_tokens for request in requests),
            server=totals[PROMPT_TOKENS],
            tolerance=0.0,
        ),
        Row(name="tokens written", bench=tokens, server=totals[TOKENS], tolerance=0.0),
        Row(
            name="tokens/s in all",
            bench=0.0 if figures.tokens_per_s is None else figures.tokens_per_s.median,
            server=totals[TOKENS] / observed.seconds,
            tolerance=SPEED_TOLERANCE,
        ),
        Row(
            name="tokens/s of a request",
            bench=tokens / sum(request.end_s for request in requests),
            server=totals[TOKENS] / totals[f"{REQUESTS_S}_sum"],
            tolerance=SPEED_TOLERANCE,
        ),
        Row(
            name="to the first token, ms, mean",
            bench=1e3 * sum(request.first_s for request in requests) / len(requests),
            server=1e3 * totals[f"{FIRST_TOKENS_S}_sum"] / num_requests,
            tolerance=None,
        ),
        *_acceptance_rows(figures, observed),
    ]


def _acceptance_rows(figures: SideFigures, observed: Observed) -> Iterator[Row]:
    """Acceptance as reported; the rounds also as arrivals of text, of which vLLM sends one a round if it has time."""
    acceptance, totals = figures.acceptance, observed.totals
    if acceptance is None:
        return
    rounds = totals[f"{FIRST_TOKENS_S}_count"] + totals[f"{LATER_ROUNDS_S}_count"]
    arrivals = sum(len(request.pauses_s) + 1 for turn in observed.turns for request in turn.requests)
    yield Row(name="guesses", bench=acceptance.drafted, server=totals[DRAFTED], tolerance=0.0)
    yield Row(name="guesses kept", bench=acceptance.accepted, server=totals[ACCEPTED], tolerance=0.0)
    yield Row(
        name="tokens a round",
        bench=acceptance.mean_acceptance_length,
        server=totals[TOKENS] / rounds,
        tolerance=1e-9,  # rounding of floats
    )
    yield Row(name="arrivals of text / rounds", bench=arrivals, server=rounds, tolerance=None)


@app.default
def compare(
    *,
    url: str,
    batch: str = "1,4",
    limit: int = 8,
    max_tokens: int = 48,
    ignore_eos: bool = False,
    server_model: str | None = None,
    json: bool = False,
) -> int:
    """Ask a server, and print both accounts of it.

    Args:
        url: where its API begins.
        batch: requests at once, with commas between.
        limit: prompts, of the forty that ship.
        max_tokens: of an answer.
        ignore_eos: write on where the model would end.
        server_model: which of its models; by default the first that it lists.
        json: end with one JSON document on the last line.
    """
    if limit < 1:
        raise ConfigError(f"--limit {limit}: it must be at least 1 prompt.")
    settings = BenchSettings(sides=("none",), cells=_cells(batch), max_tokens=max_tokens, ignore_eos=ignore_eos)
    filled = fill_cells(settings.cells, take_evenly(shipped_prompts(), limit), _characters, settings.seed)
    client = OpenAIClient(url, model=server_model)
    totals_of(url)
    cells = []
    for document, each in zip(settings.to_json()["cells"], filled, strict=True):
        rows = compare_cell(document, observe(client, each, settings, Clock()))
        cells.append({"cell": document["key"], "rows": rows})
        print(f"With {document['key']}:\n{format_rows(rows)}\n", flush=True)
    all_agree = all(row.agrees for cell in cells for row in cell["rows"])
    print("All agree." if all_agree else "They do not agree.")
    if json:
        about = {"headstart": __version__, "model": client.model, "client": describe_machine()}
        document = [{**cell, "rows": [asdict(row) for row in cell["rows"]]} for cell in cells]
        print(dumps({"agrees": all_agree, "cells": document, "environment": about}))
    return 0 if all_agree else 1


def format_rows(rows: Sequence[Row]) -> str:
    """A table; what differs too much is marked."""
    lines = [ROW.format("", "bench", "server", "")]
    for row in rows:
        lines.append(
            ROW.format(row.name, f"{row.bench:.6g}", f"{row.server:.6g}", f"{row.difference:+.1%}")
            + ("" if row.agrees else "  too far")
        )
    return "\n".join(lines)


def _cells(batch: str) -> tuple[Cell, ...]:
    try:
        return tuple(Cell(load=ClosedLoop(int(number))) for number in batch.split(","))
    except ValueError:
        raise ConfigError(f"--batch {batch!r}: give whole numbers with commas between.") from None


def _characters(prompt: Prompt) -> int:
    """Stands for a count, as prompts stay as they are."""
    return sum(len(content) for _, content in prompt.messages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, with the failures that a user can act on as text."""
    try:
        status = app(arguments, result_action="return_value")
    except HeadstartError as failure:
        print(f"server_counters: {failure}", file=sys.stderr)
        return 2 if isinstance(failure, ConfigError) else 1
    return status if isinstance(status, int) else 0  # none after --help


if __name__ == "__main__":
    sys.exit(main())
