"""Peak memory and time of one step of `headstart graft` with one head and with four, on a model of SmolLM2's sizes.

    python benchmarks/graft_memory.py --json

Each cell is a process of its own; its peak is counted without what was there before the step. Heads that do not see
each other (medusa, parallel) are turned back one by one; those that do (sequential) wait for each other. Every head has
weights of its own; what their gradients take is left out of the ratio.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Annotated, Any

import cyclopts
from rich.console import Console
from rich.table import Table

from headstart import __version__
from headstart.measure.machine import describe_machine
from memory_cells import TARGET, peak_bytes, resident_bytes, run_cell

KINDS = ("medusa", "parallel", "sequential")
DEPTHS = (1, 4)
VOCABULARY, WIDTH, BLOCKS, WINDOWS, WINDOW = 49152, 576, 30, 4, 1024

app = cyclopts.App(help=__doc__)


@app.default
def compare(*, as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False) -> None:
    """Measure all cells; with `--json`, the last line of stdout is one JSON document."""
    cells = {kind: {depth: measure_cell(kind, depth) for depth in DEPTHS} for kind in KINDS}
    table = Table(title=f"one step, {WINDOWS} x {WINDOW} tokens, {VOCABULARY} x {WIDTH}")
    for column in ("kind", "heads", "peak of the step, MiB", "of which gradients", "the rest over one head", "step s"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    reached = {}
    for kind, by_depth in cells.items():
        for depth, cell in by_depth.items():
            reached[kind] = over_one(cell, by_depth[1])
            table.add_row(
                kind, str(depth), f"{cell['step_bytes'] / 2**20:.0f}", f"{cell['gradient_bytes'] / 2**20:.0f}",
                f"{reached[kind]:.2f}", f"{cell['step_s']:.1f}",
            )  # fmt: skip
    Console(stderr=as_json).print(table)
    if as_json:
        document = {
            "headstart": __version__, "machine": describe_machine(), "cells": cells, "peak_n4_over_n1": reached,
            "target": TARGET,
        }  # fmt: skip
        print(json.dumps(document))


def measure_cell(kind: str, depth: int, *, vocabulary: int = VOCABULARY, windows: int = WINDOWS) -> dict[str, Any]:
    """Peak memory and time of a step, in a process of its own."""
    return run_cell(__file__, kind, depth, vocabulary, windows)


def over_one(cell: dict[str, Any], of_one: dict[str, Any]) -> float:
    """Peak memory over that of one head, gradients left out of both."""
    rest, rest_of_one = (each["step_bytes"] - each["gradient_bytes"] for each in (cell, of_one))
    return float(rest / rest_of_one)


@app.command(show=False)
def cell(kind: str, depth: int, vocabulary: int, windows: int, steps: int = 2) -> None:
    """Steps in this process; one JSON line."""
    import torch

    from headstart.architectures.config import TrunkConfig
    from headstart.architectures.rotary import RotaryConfig
    from headstart.runtime.torch_runtime import TextBatch
    from headstart.train.graft_config import GraftConfig
    from headstart.train.graft_parts import make_loss_config
    from headstart.train.heads_loss import TrainingBatch, heads_loss, learnt_rows
    from headstart.train.heads_module import HeadsModule

    torch.manual_seed(0)
    trunk = TrunkConfig(
        family="llama", vocab_size=vocabulary, hidden_size=WIDTH, num_layers=BLOCKS, num_heads=9, num_kv_heads=3,
        head_dim=64, intermediate_size=1536, norm_eps=1e-5, max_context=8192, rotary=RotaryConfig(theta=1e5, dim=64),
        windows=(0,) * BLOCKS, tied=True,
    )  # fmt: skip
    config = GraftConfig(kind=kind, depth=depth, draft_vocab_size=0)  # type: ignore[arg-type]
    unembedding = (0.02 * torch.randn(vocabulary, WIDTH)).bfloat16()
    weights = {"embedding": unembedding.float(), "final_norm": torch.ones(WIDTH)}
    heads = HeadsModule(config.heads_config(trunk), trunk, weights, None)
    for weight in heads.own_weights().values():
        torch.nn.init.normal_(weight, 0.0, 0.02)
    shape = windows, WINDOW
    states = torch.randn(*shape, WIDTH).bfloat16()
    tokens = torch.randint(vocabulary, shape)
    text = TextBatch(tokens, torch.zeros_like(tokens), torch.arange(WINDOW).expand(shape))
    supervised = torch.ones(shape, dtype=torch.bool)
    batch = TrainingBatch(
        text=text, supervised=supervised, taps=states, trunk_states=states, log_normaliser=torch.zeros(shape),
        likeliest=tokens,
    )  # fmt: skip
    counts = [int(learnt_rows(heads.config, batch, level).sum()) for level in range(1, depth + 1)]
    before, seconds = resident_bytes(), []
    for _ in range(steps):
        for weight in heads.own_weights().values():
            weight.grad = None
        started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = heads_loss(heads, batch, unembedding, make_loss_config(config), counts)
        loss.backward()
        seconds.append(time.perf_counter() - started)
    found = {
        "step_bytes": peak_bytes() - before,
        "gradient_bytes": sum(4 * weight.numel() for weight in heads.own_weights().values()),
        "before_bytes": before,
        "step_s": statistics.median(seconds[1:] or seconds),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    app()
