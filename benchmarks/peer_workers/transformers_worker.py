"""transformers (PyTorch) as a peer: the GGUF's weights, dequantised to bf16."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from protocol import Clock, Loaded, Worker, serve
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.generation.streamers import BaseStreamer


class Stamps(BaseStreamer):
    """Stamps the clock for each token; `generate` hands it the prompt first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prompt_came = False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_came:
            self._clock.token()
        self._prompt_came = True

    def end(self) -> None:
        """Nothing is held back."""


class Transformers(Worker):
    def load(self, *, model: str, threads: int, context: int, weights_folder: str | None) -> Loaded:
        torch.set_num_threads(threads)
        path = Path(model)
        self._tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self._model = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            dtype=torch.bfloat16,
            # weights left packed are slower still, and cannot be saved
            quantization_config=GgufConfig(dequantize=True),
        )
        self._model.eval()
        return Loaded(
            name="transformers",
            version=f"{transformers.__version__}, torch {torch.__version__}",
            weights="the GGUF dequantised to bf16",
        )

    def tokenize(self, *, text: str) -> dict[str, Any]:
        return {"token_ids": self._tokenizer(text, add_special_tokens=False)["input_ids"]}

    def generate(self, *, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        clock = Clock()
        written = self._write([prompt_ids], max_tokens, Stamps(clock))
        return clock.answer(written[0, len(prompt_ids) :].tolist())

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        start = time.perf_counter()
        self._write(prompts, max_tokens, None)
        return {"num_tokens": max_tokens * len(prompts), "seconds": time.perf_counter() - start}

    def export(self, *, folder: str) -> dict[str, Any]:
        self._model.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
        return {"folder": folder}

    def _write(self, prompts: list[list[int]], max_tokens: int, streamer: BaseStreamer | None) -> torch.Tensor:
        prompt_ids = torch.tensor(prompts)
        with torch.inference_mode():
            return self._model.generate(
                prompt_ids,
                attention_mask=torch.ones_like(prompt_ids),
                max_new_tokens=max_tokens,
                min_new_tokens=max_tokens,  # bars the end token, which is how end tokens are ignored here
                do_sample=False,
                streamer=streamer,
                pad_token_id=self._tokenizer.eos_token_id,
            )


if __name__ == "__main__":
    serve(Transformers())
