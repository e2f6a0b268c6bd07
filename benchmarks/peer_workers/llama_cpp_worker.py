"""llama.cpp as a peer, through its C interface as `llama-cpp-python` ships it.

The loop calls `llama_decode` and takes the argmax itself: nothing of the Python
package's own sampling is in the figures.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import llama_cpp
import numpy as np
from protocol import Clock, Loaded, Worker, serve

BATCH_ROWS = 512  # of one llama_decode


@dataclass(frozen=True)
class Row:
    """One token of a batch; `wanted` if its logits will be read."""

    token: int
    position: int
    sequence: int
    wanted: bool


class Context:
    """A llama.cpp context with one reusable batch; `close` frees both.

    Args:
        model: the loaded model.
        threads: for single tokens and for batches alike.
        capacity: tokens of all sequences together.
        num_sequences: sequences at once.
    """

    def __init__(self, model: Any, threads: int, capacity: int, num_sequences: int = 1) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = capacity
        params.n_batch = params.n_ubatch = BATCH_ROWS
        params.n_seq_max = num_sequences
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH_ROWS, 0, 1)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def close(self) -> None:
        """Free the memory."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def truncate(self, position: int) -> None:
        """Forget the first sequence's tokens from `position` on."""
        llama_cpp.llama_memory_seq_rm(self._memory, 0, position, -1)

    def decode(self, rows: Sequence[Row]) -> list[int]:
        """Run at most `BATCH_ROWS` rows; the likeliest next token of each wanted one, in order."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, row in enumerate(rows):
            batch.token[index] = row.token
            batch.pos[index] = row.position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = row.sequence
            batch.logits[index] = row.wanted
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode gave {status} for {len(rows)} tokens")
        return [self._argmax(index) for index, row in enumerate(rows) if row.wanted]

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Forget all, run whole prompts, as many to a batch as fit; the first new token of each."""
        llama_cpp.llama_memory_clear(self._memory, False)
        rows = [
            Row(token, position, sequence, wanted=position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        chunks = (rows[start : start + BATCH_ROWS] for start in range(0, len(rows), BATCH_ROWS))
        return [token for chunk in chunks for token in self.decode(chunk)]

    def _argmax(self, index: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, index)
        return int(np.ctypeslib.as_array(logits, shape=(self._vocab_size,)).argmax())


class LlamaCpp(Worker):
    def load(self, *, model: str, threads: int, context: int, weights_folder: str | None) -> Loaded:
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        self._threads = threads
        self._single = Context(self._model, threads, context)
        description = ctypes.create_string_buffer(128)
        llama_cpp.llama_model_desc(self._model, description, len(description))
        return Loaded(
            name="llama.cpp",
            version=f"llama-cpp-python {version('llama-cpp-python')}",
            weights=f"the same GGUF ({description.value.decode()})",
        )

    def tokenize(self, *, text: str) -> dict[str, Any]:
        encoded = text.encode()
        room = (llama_cpp.llama_token * (len(encoded) + 8))()
        vocab = llama_cpp.llama_model_get_vocab(self._model)
        count = llama_cpp.llama_tokenize(vocab, encoded, len(encoded), room, len(room), False, False)
        return {"token_ids": list(room[:count])}

    def generate(self, *, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        clock = Clock()
        token_ids = self._single.prefill([prompt_ids])
        clock.token()
        for position in range(len(prompt_ids), len(prompt_ids) + max_tokens - 1):
            token_ids += self._single.decode([Row(token_ids[-1], position, 0, wanted=True)])
            clock.token()
        return clock.answer(token_ids)

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        longest = max(map(len, prompts)) + max_tokens
        with closing(Context(self._model, self._threads, longest * len(prompts), len(prompts))) as context:
            start = time.perf_counter()
            last = context.prefill(prompts)
            for step in range(max_tokens - 1):
                last = context.decode(
                    [
                        Row(token, len(prompt) + step, sequence, wanted=True)
                        for sequence, (token, prompt) in enumerate(zip(last, prompts, strict=True))
                    ]
                )
            return {"num_tokens": max_tokens * len(prompts), "seconds": time.perf_counter() - start}

    def cost(self, *, rows: list[int], context: int, repeats: int) -> dict[str, Any]:
        self._single.prefill([[7 * index % 1000 + 100 for index in range(context)]])
        milliseconds: dict[str, list[float]] = {}
        for count in rows:
            chain = [Row(11 * index % 1000 + 100, context + index, 0, wanted=True) for index in range(count)]
            times = [self._time(chain, context) for _ in range(repeats + 1)]
            # llama.cpp builds a graph for each new shape and keeps it for the next pass: the first is not its speed
            milliseconds[str(count)] = times[1:]
        return {"ms": milliseconds}

    def _time(self, chain: list[Row], context: int) -> float:
        """Milliseconds of one pass; its tokens are forgotten again."""
        start = time.perf_counter()
        self._single.decode(chain)
        elapsed = time.perf_counter() - start
        self._single.truncate(context)
        return elapsed * 1000


if __name__ == "__main__":
    serve(LlamaCpp())
