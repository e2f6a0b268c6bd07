"""Headstart as a side of the comparison: the native runtime, decoding plainly."""

from __future__ import annotations

import time
from typing import Any

from protocol import Loaded, Worker, serve

from headstart import Engine, SamplingParams, __version__
from headstart.checkpoint import open_checkpoint
from headstart.runtime.native import load_trunk
from headstart.runtime.protocol import Choice
from headstart.testing.passes import rows_of_one


class Headstart(Worker):
    def load(self, *, model: str, threads: int, context: int, weights_folder: str | None) -> Loaded:
        checkpoint = open_checkpoint(model)
        self._tokenizer = checkpoint.tokenizer()
        self._trunk = load_trunk(checkpoint, threads=threads)
        # plain decoding is compared, so no drafter; nothing may come from an earlier round, so no shared prefixes
        self._engine = Engine(self._trunk, self._tokenizer, drafter=None, max_batch=16, share_prefixes=False)
        return Loaded(name="Headstart", version=__version__, weights="the same GGUF")

    def tokenize(self, *, text: str) -> dict[str, Any]:
        return {"token_ids": list(self._tokenizer.encode(text, add_special_tokens=False))}

    def generate(self, *, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        completion = self._engine.generate(prompt_ids, _greedy(max_tokens))
        return {
            "token_ids": list(completion.token_ids),
            "prefill_s": completion.prefill_s,
            "generation_s": completion.generation_s,
        }

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        start = time.perf_counter()
        completions = self._engine.generate_many(prompts, _greedy(max_tokens))
        seconds = time.perf_counter() - start
        return {"num_tokens": sum(len(completion.token_ids) for completion in completions), "seconds": seconds}

    def cost(self, *, rows: list[int], context: int, repeats: int) -> dict[str, Any]:
        # the engine is idle and shares no prefixes, so every page is free to be written
        self._run(0, context)
        milliseconds: dict[str, list[float]] = {}
        for count in rows:
            times = [self._run(context, count) for _ in range(repeats + 1)]
            milliseconds[str(count)] = times[1:]  # as with every peer, the first pass of a shape is left out
        return {"ms": milliseconds}

    def _run(self, committed: int, count: int) -> float:
        """Milliseconds of one pass over `count` tokens in a chain, their choices included."""
        rows = rows_of_one([11 * row % 1000 + 100 for row in range(count)], committed=committed)
        chooser = self._trunk.make_chooser(SamplingParams(), 0, (0,), ())
        choices = [Choice(row, chooser, committed + row + 1, ()) for row in range(count)]
        start = time.perf_counter()
        self._trunk.forward(rows)
        self._trunk.choose(choices)
        return (time.perf_counter() - start) * 1000


def _greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


if __name__ == "__main__":
    serve(Headstart())
