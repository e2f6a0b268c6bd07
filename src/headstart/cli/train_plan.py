"""What `headstart train --plan` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headstart.measure.numbers import significant

if TYPE_CHECKING:
    from headstart.train.pretrain.scale import Scale


def spoken_plan(scale: Scale) -> str:
    """Tables of a run's parameters, operations and memory."""
    rows = [("", "parameters", "FLOPs a token", "logits at once", "kept for backward")]
    rows += [
        (
            part.name,
            _count(part.parameters),
            _count(part.flops_per_token),
            _size(part.logits_bytes),
            _size(part.activation_bytes),
        )
        for part in scale.parts
    ]
    rows.append(("together", _count(scale.parameters), _count(scale.flops_per_token), "", ""))
    memory = [
        ("memory of one device", "this program", "a plain loop"),
        ("weights", _size(scale.weights_bytes), _size(scale.weights_bytes)),
        ("gradients", _size(scale.gradients_bytes), _size(scale.gradients_bytes)),
        ("optimiser", _size(scale.optimiser_bytes), _size(scale.optimiser_bytes)),
        ("moving average", _size(scale.average_bytes), _size(scale.average_bytes)),
        ("logits", _size(scale.logits_bytes), _size(scale.naive_logits_bytes)),
        ("kept for backward", _size(scale.activation_bytes), _size(scale.naive_activation_bytes)),
        ("together", _size(scale.peak_bytes), _size(scale.naive_peak_bytes)),
    ]
    if not scale.average_bytes:
        memory = [row for row in memory if row[0] != "moving average"]
    tokens = f"{_count(scale.tokens_per_step)} tokens a step"
    if scale.num_steps:
        total = scale.num_steps * scale.tokens_per_step
        flops = total * scale.mean_flops_per_token
        tokens += f", {scale.num_steps} steps: {_count(total)} tokens, {_count(flops)} FLOPs in all"
    notes = (
        f"A vocabulary of {scale.vocab_size}; {tokens}. Memory is that of float32 for one micro-batch; several devices "
        "share weights, gradients and optimiser. A plain loop holds the logits of all heads, their logarithms and "
        "gradients at once."
    )
    return "\n\n".join((_table(rows), _table(memory), notes))


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *rest = (cell.rjust(width) if index else cell.ljust(width)
                        for index, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        lines.append("  ".join((first, *rest)).rstrip())
    return "\n".join(lines)


def _count(number: float) -> str:
    """Three digits and a power of a thousand."""
    for size, letter in ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{significant(number / size)} {letter}"
    return f"{number:.0f}"


def _size(num_bytes: float) -> str:
    for size, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"
