"""A few questions, a tiny model with heads, and completions made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headstart.records import Completion
from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf

if TYPE_CHECKING:
    from head_figures.engines import Engines

SPEC_BENCH = [
    {"id": "s1", "category": "writing", "turns": ["the rain in the north", "and the wind?"]},
    {"id": "s2", "category": "math", "turns": ["one and one"]},
    {"id": "s3", "category": "math_reasoning", "turns": ["two and one and two"]},
    {"id": "s4", "category": "coding", "turns": ["a sum"]},
]
HUMANEVAL = [{"id": "h1", "category": "code-completion", "turns": ["def the_sum(a, b):"]}]
GSM8K = [{"id": f"g{number}", "category": "math", "turns": [f"and {number} others"]} for number in range(4)]


@pytest.fixture(scope="session")
def write_data() -> Callable[[Path], Path]:
    """Writes nine questions of ten turns into a folder."""

    def write(folder: Path) -> Path:
        files = {"spec_bench": SPEC_BENCH, "humaneval": HUMANEVAL, "gsm8k": GSM8K}
        for name, questions in files.items():
            text = "".join(json.dumps(question) + "\n" for question in questions)
            (folder / f"{name}.jsonl").write_text(text)
        return folder

    return write


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, write_data: Callable[[Path], Path]) -> tuple[Path, Path, Path]:
    """A tiny model, random heads for it, and a folder with questions."""
    folder = tmp_path_factory.mktemp("heads")
    model = write_tiny_gguf(folder / "model.gguf")
    return model, write_tiny_heads(folder / "x.heads.safetensors", model, "sequential"), write_data(folder)


@pytest.fixture(scope="module")
def engines(files: tuple[Path, Path, Path]) -> Engines:
    from head_figures.engines import Engines

    return Engines.load(files[0], files[1], threads=1)


@pytest.fixture
def completion() -> Callable[..., Completion]:
    """Makes a completion of so many tokens and counts."""

    def make(
        tokens: tuple[int, ...],
        *,
        rounds: int,
        accepted: tuple[int, ...] = (),
        reached: tuple[int, ...] = (),
        first_round_tokens: int = 1,
        generation_s: float = 1.0,
    ) -> Completion:
        return Completion(
            text="", token_ids=tokens, finish_reason="length", prompt_tokens=1, seed=0, rounds=rounds, drafted=9,
            accepted=sum(accepted), accepted_by_depth=accepted, drafted_by_depth=(rounds,) * len(accepted),
            reached_by_depth=reached, first_round_tokens=first_round_tokens, generation_s=generation_s, prefill_s=1.0,
            drafter="heads",
        )  # fmt: skip

    return make
