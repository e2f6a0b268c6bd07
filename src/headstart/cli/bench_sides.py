"""The sides of a bench, opened: one loaded model for each way of drafting."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headstart import __version__
from headstart.checkpoint import open_checkpoint
from headstart.cli.bench_flags import ServerFlags
from headstart.cli.opening import draft_source, model_source
from headstart.cli.progress import progress_bar
from headstart.engine.loading import EngineParts, load_parts, require_drafter
from headstart.measure.bench import (
    BenchSettings,
    Clock,
    FilledCell,
    ServerSide,
    Side,
    fill_cells,
    make_engine_sides,
    token_counter,
)
from headstart.measure.bench.engine_side import encode_with
from headstart.measure.machine import describe_machine
from headstart.measure.openai_client import OpenAIClient
from headstart.measure.workload import Ask, Prompt


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OpenedSides:
    """What a run is made of.

    Attributes:
        sides: in the order of the settings.
        filled: cells with their prompts.
        subject: what a run must not change if it is gone on with.
        conditions: what is reported beside.
    """

    sides: Sequence[Side]
    filled: Sequence[FilledCell]
    subject: Mapping[str, Any]
    conditions: Mapping[str, Any]


def open_sides(
    model: str, settings: BenchSettings, prompts: Sequence[Prompt], *, threads: int | None, weights: str, seed: int
) -> OpenedSides:
    """Load the model once for each side, and bring the prompts to their lengths.

    Args:
        model: a file, a folder, a name on the hub, or "smollm2".
        settings: sides and cells.
        prompts: what is asked.
        threads: CPU threads.
        weights: as in `load_parts`.
        seed: of the notes that fill prompts.

    Raises:
        HeadstartError: something cannot be loaded, or does not fit.
    """
    source = model_source(model)
    checkpoint = open_checkpoint(source)
    for name in settings.sides:
        require_drafter(checkpoint, draft_source(name))
    tokenizer = checkpoint.tokenizer()
    encode = encode_with(tokenizer, has_template=tokenizer.chat_template is not None)
    # before the weights: what does not fit should not wait for them
    filled = fill_cells(settings.cells, prompts, lambda prompt: len(encode(Ask(prompt=prompt))), seed)
    parts = {name: _load(source, name, threads, weights) for name in settings.sides}
    plain = parts[settings.sides[0]]
    machine = describe_machine()
    return OpenedSides(
        sides=make_engine_sides(parts, filled, settings, Clock()),
        filled=filled,
        subject={
            "headstart": __version__,
            "model": {"name": Path(model).name, "digest": plain.checkpoint.digest(), "weights": weights},
            "drafters": {name: found for name, each in parts.items() if (found := _drafters(each))},
            "threads": plain.trunk.num_threads,
            "processor": f"{machine['cpu']}, {plain.trunk.instruction_set}",
        },
        conditions={**_conditions(filled), "machine": machine},
    )


def open_servers(flags: ServerFlags, settings: BenchSettings, prompts: Sequence[Prompt], *, seed: int) -> OpenedSides:
    """Find the servers, and bring the prompts to their lengths.

    Args:
        flags: where they are.
        settings: sides and cells.
        prompts: what is asked.
        seed: of the notes that fill prompts.

    Raises:
        HeadstartError: a server cannot be reached, or something does not fit.
    """
    assert flags.url is not None
    drafting = OpenAIClient(flags.url, model=flags.server_model, api_key=flags.api_key)
    plain = drafting
    if flags.url_plain is not None:
        plain = OpenAIClient(flags.url_plain, model=flags.server_model, api_key=flags.api_key)
    contexts = [cell.context for cell in settings.cells if cell.context is not None]
    count = token_counter(plain, max(contexts)) if contexts else _characters
    plain_name, drafting_name = settings.sides
    clock = Clock()
    filled = fill_cells(settings.cells, prompts, count, seed)
    return OpenedSides(
        sides=(
            ServerSide(plain_name, plain, clock, flags.plain_extra()),
            ServerSide(drafting_name, drafting, clock),
        ),
        filled=filled,
        subject={
            "headstart": __version__,
            "model": {"name": drafting.model},
            "servers": {plain_name: plain.url, drafting_name: drafting.url, "plain_fields": flags.plain_extra()},
        },
        conditions={**_conditions(filled), "client": describe_machine()},
    )


def _characters(prompt: Prompt) -> int:
    """Stands for a count where prompts stay as they are."""
    return sum(len(content) for _, content in prompt.messages)


def _conditions(filled: Sequence[FilledCell]) -> dict[str, Any]:
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "prompts_left_out": {cell.cell.key: cell.num_left_out for cell in filled if cell.num_left_out},
    }


def _load(source: str, name: str, threads: int | None, weights: str) -> EngineParts:
    with progress_bar(f"Loading {Path(source).name} for {name}") as show:
        parts = load_parts(
            source,
            draft=draft_source(name),
            threads=threads,
            weights=weights,
            progress=show,
        )
    for note in parts.heads.notes if parts.heads is not None else ():
        print(f"note: {name}: {note}", file=sys.stderr, flush=True)
    return parts


def _drafters(parts: EngineParts) -> dict[str, dict[str, str]]:
    """The files that guess, by what they would be mistaken for if another lay under the same name."""
    found = {}
    if parts.heads is not None:
        found["heads"] = {"name": parts.heads.file.path.name, "digest": parts.heads.file.digest()}
    if parts.draft_checkpoint is not None:
        found["model"] = {"digest": parts.draft_checkpoint.digest()}
    return found
