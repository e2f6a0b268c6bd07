"""Runs made of figures that are written down, so that what comes of them can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headstart.measure.bench import CostSample, Journal, PassSize, PassTally, RequestRecord, Turn

MakeRequest = Callable[..., RequestRecord]
MakeTurn = Callable[..., Turn]

SAMPLE = (("A <b>", 0), ("bold & ", 1), ("guess", 2))


@pytest.fixture
def make_request() -> MakeRequest:
    def make(
        name: str = "a", category: str = "code", *, end_s: float = 1.0, num_tokens: int = 10, **fields: Any
    ) -> RequestRecord:
        return RequestRecord(
            **{
                "name": name,
                "category": category,
                "prompt_tokens": 20,
                "num_tokens": num_tokens,
                "token_hash": f"hash of {name}",
                "finish_reason": "length",
                "first_s": 0.25 * end_s,
                "end_s": end_s,
                "pauses_s": (0.75 * end_s,),
                **fields,
            }
        )

    return make


@pytest.fixture
def make_turn(make_request: MakeRequest) -> MakeTurn:
    def make(
        side: str,
        repeat: int,
        seconds: float,
        *,
        cell: str = "1 at once",
        group: str = "all",
        requests: Sequence[RequestRecord] | None = None,
        passes: Sequence[PassTally] = (),
    ) -> Turn:
        return Turn(
            cell=cell,
            side=side,
            repeat=repeat,
            group=group,
            seconds=seconds,
            requests=tuple([make_request(end_s=seconds)] if requests is None else requests),
            passes=tuple(passes),
        )

    return make


@pytest.fixture
def whole_run(make_request: MakeRequest, make_turn: MakeTurn) -> tuple[dict[str, Any], Journal]:
    """A subject and a journal with three sides, two loads, two contexts, two repeats, passes, costs and a sample."""
    counts = {
        "rounds": 40, "tokens": 100, "drafted": 80, "accepted": 60,
        "drafted_by_depth": [40, 40], "reached_by_depth": [40, 30], "accepted_by_depth": [32, 28],
        "drafted_by_drafter": {"heads": 80}, "accepted_by_drafter": {"heads": 60},
    }  # fmt: skip
    cells = [
        {
            "key": f"{batch} at once, {context} tokens",
            "load": {"kind": "closed", "concurrency": batch},
            "context": context,
        }
        for context in (128, 2048)
        for batch in (1, 4)
    ]
    journal = Journal(None, {})
    speeds = {"none": 1.0, "lookup": 0.95, "heads": 0.7}
    for place, cell in enumerate(cells):
        for repeat in range(2):
            for side, factor in speeds.items():
                drafts = side == "heads"
                requests = [
                    make_request(
                        f"{category}-1", category, end_s=factor * (1 + 0.1 * repeat + place) * length, num_tokens=100,
                        acceptance=counts if drafts else None,
                        sample=SAMPLE if drafts and not repeat and not place else (),
                    )
                    for category, length in (("code", 1.0), ("a very long | category", 1.2))
                ]  # fmt: skip
                sequences = cell["load"]["concurrency"]  # type: ignore[index]
                passes = [
                    PassTally(
                        sequences=sequences, drafted=2 * sequences, passes=40, tokens=100 * sequences, seconds=0.6,
                        trunk_s=0.48,
                    )
                    if drafts
                    else PassTally(
                        sequences=sequences, drafted=0, passes=100, tokens=100 * sequences, seconds=1.0, trunk_s=0.9
                    )
                ]  # fmt: skip
                key = str(cell["key"])
                seconds = sum(request.end_s for request in requests)
                journal.add(
                    make_turn(
                        side,
                        repeat,
                        seconds,
                        cell=key,
                        requests=requests,
                        passes=passes,
                    )
                )
                points = {
                    PassSize(sequences, rows * sequences): seconds
                    for rows, seconds in ((1, 0.01), (3, 0.013), (17, 0.05))
                }
                journal.add(CostSample(cell=key, side=side, repeat=repeat, group="all", context=128, seconds=points))
    subject = {
        "model": {"name": "toy <model>"},
        "settings": {"sides": list(speeds), "cells": cells, "max_tokens": 100},
    }
    return subject, journal
