"""How a benchmark speaks with an engine: the worker's side.

A worker is one engine in a process of its own, in that engine's own Python
environment. It reads one JSON object a line from stdin and answers each with
one JSON object on stdout; so no engine's libraries, threads or settings are
near another's. This file is imported by every worker and uses the standard
library alone.

| command | fields | answer |
|---|---|---|
| load | model, threads, context, weights_folder | name, version, weights |
| tokenize | text | token_ids |
| generate | prompt_ids, max_tokens | token_ids, prefill_s, generation_s |
| batch | prompts, max_tokens | num_tokens, seconds |
| cost | rows, context, repeats | ms: {rows: [milliseconds, ...]} |
| export | folder | folder |
| quit | | |

An answer {"error": text} says that the engine failed, {"unsupported": text}
that it has no such thing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class Unsupported(Exception):  # noqa: N818 - the answer's own word
    """The engine cannot do what the command asks."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a worker says of itself once the model is in memory.

    Attributes:
        name: the engine.
        version: its release.
        weights: the form in which it holds the weights.
    """

    name: str
    version: str
    weights: str


@dataclass
class Clock:
    """Time stamps of one greedy generation.

    `token` is called as each token becomes known; the first call ends the
    prefill. Both sides of a pair are timed by this one definition.
    """

    start: float = field(default_factory=time.perf_counter)
    stamps: list[float] = field(default_factory=list)

    def token(self) -> None:
        """Note that one more token is known."""
        self.stamps.append(time.perf_counter())

    def answer(self, token_ids: Sequence[int]) -> dict[str, Any]:
        """The answer to `generate`: seconds to the first token, and from there to the last."""
        return {
            "token_ids": [int(token) for token in token_ids],
            "prefill_s": self.stamps[0] - self.start,
            "generation_s": self.stamps[-1] - self.stamps[0],
        }


class Worker:
    """One engine. A subclass answers the commands that its engine can serve."""

    def load(self, *, model: str, threads: int, context: int, weights_folder: str | None) -> Loaded:
        """Load the GGUF file `model`, or the safetensors of `weights_folder` where the engine needs them."""
        raise NotImplementedError

    def tokenize(self, *, text: str) -> dict[str, Any]:
        """Token ids of a text, without special tokens."""
        raise Unsupported("tokenize")

    def generate(self, *, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        """Write exactly `max_tokens` tokens greedily, end tokens or not."""
        raise NotImplementedError

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        """Serve all prompts at once; the answer's time includes their prefill."""
        raise Unsupported("several requests at once")

    def cost(self, *, rows: list[int], context: int, repeats: int) -> dict[str, Any]:
        """Time forward passes over so many new tokens after `context` tokens, with the argmax of each."""
        raise Unsupported("timing a single forward pass")

    def export(self, *, folder: str) -> dict[str, Any]:
        """Write the weights as a bf16 safetensors folder for engines that read no GGUF."""
        raise Unsupported("export")


def serve(worker: Worker) -> None:
    """Answer commands until `quit` or the end of stdin."""
    # engines and their compilers print to stdout: the answers get a descriptor of their own
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for line in sys.stdin:
        message = json.loads(line)
        command = message.pop("command")
        if command == "quit":
            return
        answers.write(json.dumps(_answer(getattr(worker, command), message)) + "\n")


def _answer(method: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        result = method(**arguments)
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except Exception as failure:  # whatever an engine throws is a result of the benchmark, not its end
        return {"error": f"{type(failure).__name__}: {failure}"}
    return vars(result) if isinstance(result, Loaded) else result
