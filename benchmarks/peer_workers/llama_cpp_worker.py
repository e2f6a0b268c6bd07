"""llama.cpp as a peer, through its C interface as `llama-cpp-python` ships it.

The loop calls `llama_decode` and takes the argmax itself: nothing of the Python
package's own sampling is in the figures.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import llama_cpp
import numpy as np
from protocol import Clock, Loaded, Worker, serve


class Context:
    """A llama.cpp context with one reusable batch.

    Args:
        model: the loaded model.
        threads: for single tokens and for batches alike.
        capacity: tokens of all sequences together.
        num_sequences: sequences at once.
    """

    def __init__(self, model: Any, threads: int, capacity: int, num_sequences: int = 1) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = capacity
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = num_sequences
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def clear(self) -> None:
        """Forget every sequence."""
        llama_cpp.llama_memory_clear(self._memory, False)

    def truncate(self, position: int) -> None:
        """Forget the first sequence's tokens from `position` on."""
        llama_cpp.llama_memory_seq_rm(self._memory, 0, position, -1)

    def decode(
        self, tokens: Sequence[int], positions: Sequence[int], sequences: Sequence[int], wanted: Sequence[bool]
    ) -> None:
        """Run tokens; logits of the wanted ones can be read afterwards."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for row, (token, position, sequence, want) in enumerate(zip(tokens, positions, sequences, wanted, strict=True)):
            batch.token[row] = token
            batch.pos[row] = position
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
            batch.logits[row] = want
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode gave {status} for {len(tokens)} tokens")

    def argmax(self, row: int) -> int:
        """The likeliest token after a wanted row of the last batch."""
        logits = llama_cpp.llama_get_logits_ith(self._context, row)
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
        context = self._single
        context.clear()
        clock = Clock()
        length = len(prompt_ids)
        _prefill(context, prompt_ids, 0)
        token_ids = [context.argmax(length - 1)]
        clock.token()
        while len(token_ids) < max_tokens:
            context.decode([token_ids[-1]], [length + len(token_ids) - 1], [0], [True])
            token_ids.append(context.argmax(0))
            clock.token()
        return clock.answer(token_ids)

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        capacity = sum(len(prompt) + max_tokens for prompt in prompts)
        context = Context(self._model, self._threads, capacity, len(prompts))
        start = time.perf_counter()
        last = []
        for sequence, prompt in enumerate(prompts):
            _prefill(context, prompt, sequence)
            last.append(context.argmax(len(prompt) - 1))
        for step in range(max_tokens - 1):
            positions = [len(prompt) + step for prompt in prompts]
            context.decode(last, positions, range(len(prompts)), [True] * len(prompts))
            last = [context.argmax(row) for row in range(len(prompts))]
        return {"num_tokens": max_tokens * len(prompts), "seconds": time.perf_counter() - start}

    def cost(self, *, rows: list[int], context: int, repeats: int) -> dict[str, Any]:
        single = self._single
        single.clear()
        _prefill(single, [(7 * index) % 1000 + 100 for index in range(context)], 0)
        milliseconds: dict[str, list[float]] = {str(count): [] for count in rows}
        for count in rows:
            tokens = [(11 * index) % 1000 + 100 for index in range(count)]
            for _ in range(repeats + 1):
                start = time.perf_counter()
                single.decode(tokens, range(context, context + count), [0] * count, [True] * count)
                for row in range(count):
                    single.argmax(row)
                milliseconds[str(count)].append((time.perf_counter() - start) * 1000)
                single.truncate(context)
            # llama.cpp builds a graph for each new shape and keeps it for the next pass: the first is not its speed
            del milliseconds[str(count)][0]
        return {"ms": milliseconds}


def _prefill(context: Context, prompt_ids: list[int], sequence: int) -> None:
    length = len(prompt_ids)
    context.decode(prompt_ids, range(length), [sequence] * length, [index == length - 1 for index in range(length)])


if __name__ == "__main__":
    serve(LlamaCpp())
