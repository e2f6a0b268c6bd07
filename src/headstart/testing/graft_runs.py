"""Grafts of a second or two: what they begin with, and how they are stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.train.graft_config import GraftConfig
from headstart.train.phases import Progress
from headstart.train.prompts import Prompt, PromptList

PROMPTS = PromptList(
    tuple(Prompt(turns=(f"Say {word}.",)) for word in ("one", "two", "three", "four", "five", "six", "seven"))
)
SMALL_GRAFT = GraftConfig(
    kind="medusa", depth=2, draft_vocab_size=100, text_tokens=900, window=48, epochs=1, checkpoints=2, threads=1
)
OUTCOME = ("heads.safetensors", "state.safetensors")
"""What a run's folder holds of the training itself."""


def metrics(run: Path) -> list[dict[str, Any]]:
    """What a run has recorded, in order."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_speed(run: Path) -> list[dict[str, Any]]:
    """The same, but for what no two runs have in common."""
    return [{key: value for key, value in line.items() if key != "tokens_per_s"} for line in metrics(run)]


def stop_at(phase: str, done: float) -> tuple[Callable[[Progress], None], Callable[[], bool]]:
    """Listeners that stop a run once a phase is so far: `show` and `should_stop`."""
    reached = False

    def show(progress: Progress) -> None:
        nonlocal reached
        reached = reached or (progress.phase == phase and progress.done >= done)

    return show, lambda: reached
