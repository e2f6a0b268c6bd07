"""Two engines taking turns, and what comes of it.

In every round each side does the same work once, while the other is paused. A
round's ratio compares two neighbours in time, so a machine that is slow for a
while is slow for both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

PROMPT_TOKENS = 64
NEW_TOKENS = 128
PREFILL_TOKENS = 512
BATCH_REQUESTS = 16
COST_ROWS = (1, 2, 4, 8, 16, 32)
COST_CONTEXT = 256
COST_REPEATS = 5

# numbered, so that a window never begins like another and no engine can serve it from a cache of prefixes
TEXT = "".join(
    f"Note {number}: the ship left harbour {number % 9 + 1} with {number * 7 % 83} barrels of grain and a crew of "
    f"{number % 17 + 3}, and the keeper of the light wrote the hour of its leaving into his book.\n"
    for number in range(1, 101)
)


class Side(Protocol):
    """One of the two engines."""

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""

    def pause(self) -> None:
        """Stop all its threads."""

    def resume(self) -> None:
        """Let it run on."""


class Pair:
    """Our engine and a peer, both loaded.

    Args:
        ours: our side; paused from here on except in its turns.
        peer: the other side, likewise.
        token_ids: a text of at least `PREFILL_TOKENS` tokens, of which prompts are cut.
        rounds: turns of each side for each measure, at least 1.
    """

    def __init__(self, ours: Side, peer: Side, token_ids: Sequence[int], rounds: int) -> None:
        self._ours = ours
        self._peer = peer
        self._token_ids = list(token_ids)
        self._rounds = rounds
        ours.pause()
        peer.pause()

    def plain(self) -> dict[str, Any]:
        """Tokens/s of one greedy sequence, from the first new token to the last.

        `same_first_tokens` is the median length over the turns of what both sides wrote alike: peers round
        activations and sums in their own ways, so they may part at a near tie, but not at once everywhere.
        """
        texts: dict[int, list[list[int]]] = {}

        def run(side: Side, turn: int) -> float:
            answer = side.ask("generate", prompt_ids=self._window(turn, PROMPT_TOKENS), max_tokens=NEW_TOKENS)
            texts.setdefault(turn, []).append(answer["token_ids"])
            return (len(answer["token_ids"]) - 1) / float(answer["generation_s"])

        speeds = self._speeds(run)
        return speeds | {"same_first_tokens": statistics.median(_common_length(*pair) for pair in texts.values())}

    def prefill(self) -> dict[str, Any]:
        """Prompt tokens/s up to the first new token."""

        def run(side: Side, turn: int) -> float:
            answer = side.ask("generate", prompt_ids=self._window(turn, PREFILL_TOKENS), max_tokens=1)
            return PREFILL_TOKENS / float(answer["prefill_s"])

        return self._speeds(run)

    def batch(self) -> dict[str, Any]:
        """New tokens/s of all requests at once, their prefill included."""

        def run(side: Side, turn: int) -> float:
            first = turn * BATCH_REQUESTS
            prompts = [self._window(first + request, PROMPT_TOKENS) for request in range(BATCH_REQUESTS)]
            answer = side.ask("batch", prompts=prompts, max_tokens=NEW_TOKENS)
            return float(answer["num_tokens"]) / float(answer["seconds"])

        return self._speeds(run)

    def cost(self) -> dict[str, Any]:
        """Median milliseconds of a pass for each number of rows, and v(R) = C(R) / C(1)."""
        ours: dict[str, list[float]] = {str(rows): [] for rows in COST_ROWS}
        peer: dict[str, list[float]] = {str(rows): [] for rows in COST_ROWS}
        for _ in range(self._rounds):
            # the peer first: most engines cannot say what a pass costs, and then ours need not
            for side, times in ((self._peer, peer), (self._ours, ours)):
                with _turn(side):
                    answer = side.ask("cost", rows=COST_ROWS, context=COST_CONTEXT, repeats=COST_REPEATS)
                for rows, milliseconds in answer["ms"].items():
                    times[rows] += milliseconds
        return {"peer": _curve(peer), "ours": _curve(ours)}

    def _speeds(self, run: Callable[[Side, int], float]) -> dict[str, Any]:
        """Medians of both sides' speeds, and of their ratio within a round.

        Turn 0 of each side is not counted: it pays for what is touched or compiled for the first time.
        """
        ours: list[float] = []
        peer: list[float] = []
        for turn in range(self._rounds + 1):
            for side, speeds in ((self._ours, ours), (self._peer, peer)):
                with _turn(side):
                    speeds.append(run(side, turn))
        ratios = [mine / theirs for mine, theirs in zip(ours[1:], peer[1:], strict=True)]
        return {
            "peer": statistics.median(peer[1:]),
            "ours": statistics.median(ours[1:]),
            "ratio": statistics.median(ratios),
            "min": min(ratios),
            "max": max(ratios),
        }

    def _window(self, start: int, length: int) -> list[int]:
        """Another prompt for each turn, the same for both sides."""
        start = 3 * start % (len(self._token_ids) - length + 1)
        return self._token_ids[start : start + length]


@contextmanager
def _turn(side: Side) -> Iterator[None]:
    side.resume()
    try:
        yield
    finally:
        side.pause()


def _curve(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    medians = {rows: statistics.median(milliseconds) for rows, milliseconds in times.items()}
    return {rows: {"ms": median, "relative": median / medians["1"]} for rows, median in medians.items()}


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens are the same before the first that differs."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(first), len(second)))
