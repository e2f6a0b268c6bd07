"""Plots of the page as SVG files, the same bytes for the same figures."""

from __future__ import annotations

import statistics
from pathlib import Path

from headstart.errors import UnsupportedError
from paper.claim import Plot

_MARKERS = "os^Dv<>P"


def draw(plot: Plot, folder: Path) -> Path:
    """Draw a plot: means over seeds, with their range.

    Returns:
        The file.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "Plots are drawn by matplotlib, which is not installed: pip install matplotlib"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{plot.name}.svg"
    # without a salt the names of its elements are random, and the file differs each time
    with matplotlib.rc_context({"svg.hashsalt": plot.name}):
        figure = Figure(figsize=(6, 3.6), layout="constrained")
        axes = figure.subplots()
        for number, line in enumerate(plot.lines):
            places = [place for place, _ in line.points]
            means = [statistics.fmean(values) for _, values in line.points]
            # a mean of equal values may be rounded to beside them
            below = [max(0.0, mean - min(values)) for mean, (_, values) in zip(means, line.points, strict=True)]
            above = [max(0.0, max(values) - mean) for mean, (_, values) in zip(means, line.points, strict=True)]
            marker = _MARKERS[number % len(_MARKERS)]
            axes.errorbar(places, means, yerr=(below, above), marker=marker, capsize=3, label=line.label)
        axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
        places = sorted({place for line in plot.lines for place, _ in line.points})
        axes.set_xticks(places, plot.names or [f"{place:g}" for place in places])
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        figure.savefig(path, metadata={"Date": None})
    return path
