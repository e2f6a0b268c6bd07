"""vLLM on the CPU as a peer: dequantised bf16 weights from a safetensors folder."""

from __future__ import annotations

import os
import time
from typing import Any

# read when vllm is imported: the engine runs in this process, so that pausing it pauses all of it
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")

import vllm
from protocol import Clock, Loaded, Worker, serve


class Vllm(Worker):
    def load(self, *, model: str, threads: int, context: int, weights_folder: str | None) -> Loaded:
        if weights_folder is None:
            raise ValueError("vLLM on the CPU reads no GGUF; it needs a folder of safetensors.")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
        self._llm = vllm.LLM(
            model=weights_folder,
            dtype="bfloat16",
            max_model_len=context,
            max_num_seqs=32,
            enable_prefix_caching=False,  # a prompt that comes again would cost nothing
        )
        return Loaded(name="vLLM CPU", version=f"vllm {vllm.__version__}", weights="the GGUF dequantised to bf16")

    def tokenize(self, *, text: str) -> dict[str, Any]:
        return {"token_ids": self._llm.get_tokenizer().encode(text, add_special_tokens=False)}

    def generate(self, *, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        engine = self._llm.llm_engine
        clock = Clock()
        engine.add_request("generate", vllm.TokensPrompt(prompt_token_ids=prompt_ids), _greedy(max_tokens))
        token_ids: list[int] = []
        while engine.has_unfinished_requests():
            for output in engine.step():
                fresh = output.outputs[0].token_ids[len(token_ids) :]
                token_ids.extend(fresh)
                for _ in fresh:
                    clock.token()
        return clock.answer(token_ids)

    def batch(self, *, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        start = time.perf_counter()
        outputs = self._llm.generate(
            [vllm.TokensPrompt(prompt_token_ids=prompt) for prompt in prompts],
            _greedy(max_tokens),
            use_tqdm=False,
        )
        seconds = time.perf_counter() - start
        return {"num_tokens": sum(len(output.outputs[0].token_ids) for output in outputs), "seconds": seconds}


def _greedy(max_tokens: int) -> vllm.SamplingParams:
    return vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)


if __name__ == "__main__":
    serve(Vllm())
