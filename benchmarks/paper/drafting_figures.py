"""Tables and plots of what heads were worth, over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from paper.claim import Figures, Line, Plot, Table

ByVariant = Mapping[str, Sequence[Figures]]
"""What `paper.drafting` found for each seed, by what was measured."""


def over_seeds(found: Sequence[Figures], name: str, depth: str = "") -> list[float]:
    """A figure of each seed.

    Args:
        found: by seed.
        name: of the figure.
        depth: at which it was measured; by default the only one.
    """
    return [each["by_depth"][depth or next(iter(each["by_depth"]))][name] for each in found]


def spread(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean and range, such as "2.31 (2.28 to 2.35)"; figures that could not be measured are left out."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = f"{statistics.fmean(known):.{digits}f}"
    if len(known) == 1:
        return mean
    return f"{mean} ({min(known):.{digits}f} to {max(known):.{digits}f})"


DRAFT_HEAD = (
    "tokens a pass, greedy", "distinct 8-byte runs", "tokens a pass, temperature 1", "distinct 8-byte runs",
)  # fmt: skip
"""Names of the columns of `draft_cells`."""


def draft_cells(found: Sequence[Figures], depth: str = "") -> tuple[str, ...]:
    """Tokens a pass, greedily and at temperature 1, each with the share of distinct runs; dashes if nothing was found.

    Args:
        found: by seed.
        depth: as for `over_seeds`.
    """
    names = ("tau", "distinct_8gram_share", "tau_drawn", "distinct_8gram_share_drawn")
    return tuple(spread(over_seeds(found, name, depth)) for name in names)


def acceptance_table(what: str, variants: ByVariant) -> Table:
    """What several variants reach, each with what is kept by depth."""
    return Table(
        head=(what, *DRAFT_HEAD, "kept by depth, temperature 1"),
        rows=tuple(
            (name, *draft_cells(found), " ".join(f"{statistics.fmean(shares):.2f}" for shares in _survivals(found)))
            for name, found in variants.items()
        ),
    )


def survival_plot(name: str, title: str, variants: ByVariant) -> Plot:
    """How many guesses are kept, with all before them, over their depth."""
    return Plot(
        name=name,
        title=title,
        x_label="depth",
        y_label="share of passes",
        lines=tuple(
            Line(
                label=variant,
                points=tuple((float(depth), shares) for depth, shares in enumerate(_survivals(found), start=1)),
            )
            for variant, found in variants.items()
        ),
    )


def _survivals(found: Sequence[Figures]) -> list[tuple[float, ...]]:
    """By depth, of each seed; 0 at a depth that no guess reached."""
    lists: list[list[float]] = [each["by_depth"][next(iter(each["by_depth"]))]["survival_drawn"] for each in found]
    depths = max(map(len, lists))
    return [tuple(shares[depth] if depth < len(shares) else 0.0 for shares in lists) for depth in range(depths)]
