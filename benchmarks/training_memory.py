"""Peak memory and time of one training step with n heads: all heads at once, one at a time, and in chunks of rows.

    python benchmarks/training_memory.py --json

Each cell is a process of its own; ratios leave out what the imports alone take. As in Gloeckle et al. 2404.19737 each
head is a transformer layer and costs the trunk one, so that all n have equal parameters, and all share one unembedding.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from rich.console import Console
from rich.table import Table

from headstart import __version__
from headstart.measure.machine import describe_machine
from memory_cells import TARGET, peak_bytes, run_cell

if TYPE_CHECKING:
    # only in the children: the parent's memory would count in theirs
    from torch import Tensor, nn

VOCABULARY, WIDTH, ATTENTION_HEADS, LAYERS = 49152, 256, 4, 9
TOKENS = 1024
HEADS = (1, 2, 4, 8)
ORDERS = ("naive", "head_by_head", "head_by_head_chunked")

app = cyclopts.App(help=__doc__)


@app.default
def compare(*, as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False) -> None:
    """Measure all cells; with `--json`, the last line of stdout is one JSON document."""
    cells = {order: [measure_cell(order, num_heads) for num_heads in HEADS] for order in ORDERS}
    console = Console(stderr=as_json)
    table = Table(title=f"one step, {TOKENS} tokens, {VOCABULARY} x {WIDTH}, {LAYERS} layers with the heads', float32")
    for column in ("order", "heads", "peak MiB", "over n = 1", "step s", "loss"):
        table.add_column(column, justify="left" if column == "order" else "right")
    for order, row in cells.items():
        for num_heads, cell in zip(HEADS, row, strict=True):
            table.add_row(
                order, str(num_heads), f"{cell['peak_bytes'] / 2**20:.0f}", f"{_over_one(row, num_heads):.3f}",
                f"{cell['step_s']:.2f}", f"{cell['loss']:.6f}",
            )  # fmt: skip
    console.print(table)
    reached = {order: _over_one(row, 4) for order, row in cells.items()}
    for order, ratio in reached.items():
        verdict = "reached" if ratio <= TARGET else "missed"
        console.print(f"{order}: peak(n=4) / peak(n=1) = {ratio:.3f}; {TARGET} {verdict}")
    if as_json:
        document = {
            "headstart": __version__, "machine": describe_machine(), "vocabulary": VOCABULARY, "width": WIDTH,
            "layers": LAYERS, "tokens": TOKENS, "heads": HEADS, "cells": cells, "peak_n4_over_n1": reached,
            "target": TARGET,
        }  # fmt: skip
        print(json.dumps(document))


def measure_cell(
    order: str, num_heads: int, *, vocabulary: int = VOCABULARY, steps: int = 1, threads: int | None = None
) -> dict[str, Any]:
    """Peak memory and time of a step, in a process of its own.

    Args:
        order: one of `ORDERS`.
        num_heads: as many layers fewer has the trunk.
        vocabulary: rows of the unembedding.
        steps: that are taken; the time is the median of all but the first, if there are others.
        threads: of the CPU; by default what the libraries take.
    """
    return run_cell(__file__, order, num_heads, vocabulary, steps, threads=threads)


@app.command(show=False)
def cell(order: str, num_heads: int, vocabulary: int = VOCABULARY, steps: int = 1) -> None:
    """Steps in this process; one JSON line."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    baseline = peak_bytes()
    trunk, heads = _layers(LAYERS - num_heads), _layers(num_heads)
    embedding = nn.Embedding(vocabulary, WIDTH)
    unembedding = nn.Parameter(0.02 * torch.randn(vocabulary, WIDTH))
    tokens = torch.randint(vocabulary, (TOKENS,))
    loss_of = {"naive": _naive, "head_by_head": _head_by_head, "head_by_head_chunked": _head_by_head_chunked}[order]
    parameters = [*trunk.parameters(), *heads.parameters(), *embedding.parameters(), unembedding]
    seconds = []
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = None
        started = time.perf_counter()
        states = embedding(tokens)[None]
        for layer in trunk:
            states = _run(layer, states)
        loss = loss_of(states, heads, unembedding, tokens)
        loss.backward()
        seconds.append(time.perf_counter() - started)
    assert unembedding.grad is not None
    print(
        json.dumps(
            {
                "peak_bytes": peak_bytes(),
                "baseline_bytes": baseline,
                "step_s": statistics.median(seconds[1:] or seconds),
                "loss": float(loss.detach()),
                "gradient_norm": float(unembedding.grad.norm()),
                "torch": torch.__version__,
            }
        )
    )


def _naive(states: Tensor, heads: nn.ModuleList, unembedding: nn.Parameter, tokens: Tensor) -> Tensor:
    losses = (_plain_loss(head, unembedding, tokens, offset)(states) for offset, head in enumerate(heads, start=1))
    return sum(losses, start=states.new_zeros(()))


def _head_by_head(states: Tensor, heads: nn.ModuleList, unembedding: nn.Parameter, tokens: Tensor) -> Tensor:
    from headstart.train.head_by_head import head_by_head

    losses = [_plain_loss(head, unembedding, tokens, offset) for offset, head in enumerate(heads, start=1)]
    return head_by_head(states, losses, [*heads.parameters(), unembedding])


def _head_by_head_chunked(states: Tensor, heads: nn.ModuleList, unembedding: nn.Parameter, tokens: Tensor) -> Tensor:
    from headstart.train.head_by_head import head_by_head

    losses = [_chunked_loss(head, unembedding, tokens, offset) for offset, head in enumerate(heads, start=1)]
    return head_by_head(states, losses, [*heads.parameters(), unembedding])


def _plain_loss(head: nn.Module, unembedding: nn.Parameter, tokens: Tensor, offset: int) -> Callable[[Tensor], Tensor]:
    from torch.nn.functional import cross_entropy

    labels, _ = _targets(tokens, offset)
    return lambda states: cross_entropy(_run(head, states)[0] @ unembedding.t(), labels)


def _chunked_loss(
    head: nn.Module, unembedding: nn.Parameter, tokens: Tensor, offset: int
) -> Callable[[Tensor], Tensor]:
    from headstart.train.chunked import chunked_loss
    from headstart.train.loss_mix import LossMix

    labels, valid = _targets(tokens, offset)
    weights = valid / valid.sum()
    mix = LossMix.parse("ce")
    return lambda states: chunked_loss(_run(head, states)[0], unembedding, mix, row_weights=weights, labels=labels).loss


def _targets(tokens: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    import torch

    from headstart.train.targets import future_targets

    return future_targets(tokens, torch.zeros_like(tokens), torch.ones_like(tokens, dtype=torch.bool), offset)


def _layers(count: int) -> nn.ModuleList:
    from torch import nn

    return nn.ModuleList(
        nn.TransformerEncoderLayer(WIDTH, ATTENTION_HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        for _ in range(count)
    )


def _run(layer: nn.Module, states: Tensor) -> Tensor:
    from torch import nn

    causal = nn.Transformer.generate_square_subsequent_mask(TOKENS)
    output: Tensor = layer(states, src_mask=causal, is_causal=True)
    return output


def _over_one(row: list[dict[str, Any]], num_heads: int) -> float:
    return _of_the_step(row[HEADS.index(num_heads)]) / _of_the_step(row[HEADS.index(1)])


def _of_the_step(cell: dict[str, Any]) -> float:
    return float(cell["peak_bytes"] - cell["baseline_bytes"])


if __name__ == "__main__":
    app()
