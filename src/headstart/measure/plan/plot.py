"""A picture of a plan: break-even curves with the plan's points on them, and speed-up over concurrency."""

from __future__ import annotations

from pathlib import Path

from headstart.errors import ConfigError, UnsupportedError
from headstart.measure.plan.break_even import even_acceptance
from headstart.measure.plan.planning import Plan

_STEPS = 100


def plot_plan(plan: Plan, path: Path) -> None:
    """Draw a plan.

    Args:
        plan: what is drawn.
        path: of the picture; its suffix says the format, such as .svg or .png.

    Raises:
        UnsupportedError: matplotlib is not installed.
        ConfigError: the suffix is of no format that it knows, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "Pictures are drawn with matplotlib, which is not installed. Install it (pip install matplotlib), or leave "
            "--plot out: the table has all figures."
        ) from None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    curve_axes, concurrency_axes = figure.subplots(1, 2)
    shares = [step / _STEPS for step in range(_STEPS + 1)]
    for entry in plan.depths:
        round_cost = entry.check_cost + entry.draft_cost
        tokens = [sum(share**power for power in range(entry.depth + 1)) for share in shares]
        (line,) = curve_axes.plot(shares, [each / round_cost for each in tokens], label=f"depth {entry.depth}")
        # acceptance may fall with depth: the point is where one for all depths would bring as many tokens
        even = even_acceptance(entry.mean_acceptance_length, entry.depth)
        curve_axes.plot([even], [entry.speedup], marker="o", color=line.get_color())
    curve_axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
    curve_axes.set(
        title="Break-even: where a curve crosses 1",
        xlabel="acceptance, the same at every depth (dots: this plan)",
        ylabel="speed-up",
    )
    curve_axes.legend(fontsize="small")
    if plan.by_concurrency:
        concurrency_axes.plot(
            [entry.concurrency for entry in plan.by_concurrency],
            [entry.speedup for entry in plan.by_concurrency],
            marker="o",
        )
        concurrency_axes.set_xscale("log", base=2)
        concurrency_axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
    else:
        concurrency_axes.text(0.5, 0.5, "no cost of so many rows is given", ha="center", va="center")
    concurrency_axes.set(title="At the best depth", xlabel="sequences in a pass", ylabel="speed-up")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: the picture cannot be written ({error}). Name another file, such as plan.svg."
        ) from error
