"""What a run measures: the sides, the loads and contexts, and how texts are written."""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.errors import ConfigError
from headstart.measure.workload import Ask, ClosedLoop, Filler, Load, Prompt, fill
from headstart.records import SamplingParams

PLAIN = "none"
"""The side that decodes plainly, by which all others are measured."""

# With fewer requests than that for each user, most of a turn would be its beginning and end.
_REQUESTS_PER_USER = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One setting of the traffic.

    Attributes:
        load: when requests come.
        context: tokens that each prompt is brought to; `None` leaves prompts as they are.
    """

    load: Load
    context: int | None = None

    @property
    def key(self) -> str:
        """Its name in results, such as "4 at once, 2048 tokens"."""
        load = (
            f"{self.load.concurrency} at once"
            if isinstance(self.load, ClosedLoop)
            else f"{self.load.rate_per_s:g} a second"
        )
        return load if self.context is None else f"{load}, {self.context} tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchSettings:
    """How every side writes, and how often.

    Attributes:
        sides: names, the plain one first.
        cells: settings of the traffic, in order.
        max_tokens: of an answer.
        temperature: 0 is greedy.
        seed: of the sampling; each request has one of its own, the same on every side.
        ignore_eos: write on to `max_tokens` where the model would end.
        cached_prompts: all prompts of a cell have been read before it is measured, and stay in the cache.
        repeats: times that each side does everything.
        warm_up_tokens: written before each cell and not counted, for each of as many requests as run at once, or of
            all prompts if they are to be cached.

    Raises:
        ConfigError: a value is out of its range, or something comes twice.
    """

    sides: tuple[str, ...]
    cells: tuple[Cell, ...]
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False
    cached_prompts: bool = False
    repeats: int = 3
    warm_up_tokens: int = 32

    def __post_init__(self) -> None:
        for name in ("repeats", "warm_up_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: it must be at least 1.")
        if self.sides[:1] != (PLAIN,):
            raise ConfigError(f"sides = {', '.join(self.sides)}: the first must be {PLAIN!r}, plain decoding.")
        for what, names in (("side", self.sides), ("setting of the traffic", [cell.key for cell in self.cells])):
            twice = sorted({name for name in names if list(names).count(name) > 1})
            if twice:
                raise ConfigError(f"The {what} {twice[0]!r} is named twice. Name it once.")
        for cell in self.cells:
            if cell.context is not None and cell.context < 1:
                raise ConfigError(f"context = {cell.context}: it must be at least 1 token.")
        self.params("")

    def params(self, name: str) -> SamplingParams:
        """How the request of that name is written.

        Raises:
            ConfigError: a value is out of its range.
        """
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=(self.seed + zlib.crc32(name.encode())) % (1 << 32),
            ignore_eos=self.ignore_eos,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "sides": list(self.sides),
            "cells": [_cell_document(cell) for cell in self.cells],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "ignore_eos": self.ignore_eos,
            "cached_prompts": self.cached_prompts,
            "repeats": self.repeats,
            "warm_up_tokens": self.warm_up_tokens,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class FilledCell:
    """A cell with its prompts.

    Attributes:
        cell: the setting.
        prompts: of its length, at least one.
        usual_tokens: median number of tokens of the prompts.
        num_left_out: prompts that are longer already.
    """

    cell: Cell
    prompts: tuple[Prompt, ...]
    usual_tokens: int
    num_left_out: int = 0

    def groups(self) -> dict[str, list[Ask]]:
        """The requests of each turn, by name.

        One at a time, a turn is a category, so that the sides take turns often. Several at a time, a turn is the whole
        set, as traffic is mixed; a set that is too small comes more than once.
        """
        load = self.cell.load
        if not isinstance(load, ClosedLoop):
            return {"all": [Ask(prompt=prompt) for prompt in self.prompts]}
        if load.concurrency == 1:
            groups: dict[str, list[Ask]] = {}
            for prompt in self.prompts:
                groups.setdefault(prompt.category, []).append(Ask(prompt=prompt))
            return groups
        # interleaved: requests that run together are of all categories
        mixed = _interleaved(self.prompts)
        count = max(len(mixed), _REQUESTS_PER_USER * load.concurrency)
        return {"all": [Ask(prompt=mixed[index % len(mixed)], copy=index // len(mixed)) for index in range(count)]}


def fill_cells(
    cells: Sequence[Cell], prompts: Sequence[Prompt], count_tokens: Callable[[Prompt], int], seed: int
) -> list[FilledCell]:
    """Bring prompts to each cell's length.

    Args:
        cells: the settings.
        prompts: what is asked.
        count_tokens: of a prompt as the model reads it.
        seed: of the notes that fill.

    Raises:
        ConfigError: all prompts are longer than a cell's context.
    """
    by_context: dict[int | None, tuple[Prompt, ...]] = {}
    for context in {cell.context for cell in cells}:
        by_context[context] = tuple(prompts) if context is None else _filled(prompts, context, count_tokens, seed)
        if not by_context[context]:
            shortest = min(count_tokens(prompt) for prompt in prompts)
            raise ConfigError(
                f"context = {context}: the shortest prompt has {shortest} tokens already, and none is cut. "
                "Take a longer context, or shorter prompts."
            )
    return [
        FilledCell(
            cell=cell,
            prompts=by_context[cell.context],
            usual_tokens=round(statistics.median(count_tokens(prompt) for prompt in by_context[cell.context])),
            num_left_out=len(prompts) - len(by_context[cell.context]),
        )
        for cell in cells
    ]


def _filled(
    prompts: Sequence[Prompt], context: int, count_tokens: Callable[[Prompt], int], seed: int
) -> tuple[Prompt, ...]:
    # notes of its own for each prompt: no server can keep them from one for the next
    filled = (
        fill(prompt, context, Filler(zlib.crc32(f"{seed} {prompt.id}".encode())), count_tokens) for prompt in prompts
    )
    return tuple(prompt for prompt in filled if prompt is not None)


def _interleaved(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The first of each category, then the second of each, and so on."""
    seen: dict[str, int] = {}
    ranked = []
    for prompt in prompts:
        seen[prompt.category] = seen.get(prompt.category, -1) + 1
        ranked.append((seen[prompt.category], prompt))
    return [prompt for _, prompt in sorted(ranked, key=lambda pair: pair[0])]


def _cell_document(cell: Cell) -> dict[str, Any]:
    if isinstance(cell.load, ClosedLoop):
        load: dict[str, Any] = {"kind": "closed", "concurrency": cell.load.concurrency}
    else:
        load = {"kind": "open", "rate_per_s": cell.load.rate_per_s, "seed": cell.load.seed}
    return {"key": cell.key, "load": load, "context": cell.context}
