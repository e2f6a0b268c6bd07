"""A picture of a run: loss, guesses by depth, and measured acceptance over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot_run(metrics: Sequence[Mapping[str, Any]], path: Path, *, with_trunk: bool = False) -> bool:
    """Draw a run's metrics.

    Args:
        metrics: lines of the metrics file.
        path: of the picture; its suffix says the format.
        with_trunk: whether the first of the figures by depth is the trunk's own.

    Returns:
        False if matplotlib is not installed, in which case nothing is drawn.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    loss_axes, depth_axes, tau_axes = figure.subplots(1, 3)
    steps = [entry for entry in metrics if entry.get("kind") == "step"]
    validations = [entry for entry in metrics if entry.get("kind") == "validation"]
    measured = [entry for entry in metrics if entry.get("kind") == "measured"]
    loss_axes.plot([entry["step"] for entry in steps], [entry["loss"] for entry in steps], linewidth=0.8)
    loss_axes.set(title="Training loss", xlabel="step", ylabel="nats, weighted over depths")
    for index in range(len(validations[0]["correct"]) if validations else 0):
        depth = index if with_trunk else index + 1
        depth_axes.plot(
            [entry["step"] for entry in validations],
            [entry["correct"][index] for entry in validations],
            marker=".",
            label=f"depth {depth}" if depth else "trunk",
        )
    depth_axes.set(title="Held-out guesses that are right", xlabel="step", ylim=(0, 1))
    if validations:
        depth_axes.legend(fontsize="small")
    tau_axes.plot([entry["step"] for entry in measured], [entry["tau"] for entry in measured], marker="o")
    tau_axes.set(title="Measured tokens a round", xlabel="step")
    figure.savefig(path)
    return True
