"""OpenVINO GenAI as a peer: it reads the GGUF itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino
import openvino_genai
from protocol import Clock, Loaded, Worker, serve


class OpenVino(Worker):
    def load(self, *, model: str, threads: int, context: int, weights_folder: str | None) -> Loaded:
        self._pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
        return Loaded(
            name="OpenVINO GenAI",
            version=openvino_genai.__version__,
            weights="the same GGUF, as OpenVINO converts it",
        )

    def tokenize(self, *, text: str) -> dict[str, Any]:
        encoded = self._pipeline.get_tokenizer().encode(text, add_special_tokens=False)
        return {"token_ids": [int(token) for token in encoded.input_ids.data[0]]}

    def generate(self, *, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        clock = Clock()
        result = self._pipeline.generate(_inputs([prompt_ids]), _greedy(max_tokens), streamer=_Stamps(clock))
        return clock.answer(result.tokens[0])

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        start = time.perf_counter()
        result = self._pipeline.generate(_inputs(prompts), _greedy(max_tokens))
        return {"num_tokens": sum(map(len, result.tokens)), "seconds": time.perf_counter() - start}


class _Stamps(openvino_genai.StreamerBase):
    """Stamps the clock for each token id, before any text is made of it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def write(self, token: int | list[int]) -> openvino_genai.StreamingStatus:
        for _ in [token] if isinstance(token, int) else token:
            self._clock.token()
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Nothing is held back."""


def _inputs(prompts: list[list[int]]) -> openvino_genai.TokenizedInputs:
    prompt_ids = np.array(prompts, dtype=np.int64)
    return openvino_genai.TokenizedInputs(openvino.Tensor(prompt_ids), openvino.Tensor(np.ones_like(prompt_ids)))


def _greedy(max_tokens: int) -> openvino_genai.GenerationConfig:
    return openvino_genai.GenerationConfig(max_new_tokens=max_tokens, ignore_eos=True, do_sample=False)


if __name__ == "__main__":
    serve(OpenVino())
