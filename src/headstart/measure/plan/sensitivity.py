"""What becomes of the best depth and its speed-up if the figures were a little off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.decoding.cost_curve import CostCurve
from headstart.measure.plan.break_even import DepthFigures, depth_figures
from headstart.measure.plan.setup import DraftingSetup

ACCEPTANCE_STEP = 0.05
COST_FACTOR = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Variation:
    """One figure changed, all others as given.

    Attributes:
        change: what was changed, in words.
        best_depth: of the chain that then pays best; 0 if none does.
        speedup: at that depth, with 1 for plain decoding.
        speedup_unadapted: if the depth stayed that of the plan.
    """

    change: str
    best_depth: int
    speedup: float
    speedup_unadapted: float


def best_figures(figures: Sequence[DepthFigures]) -> DepthFigures | None:
    """Those of the best depth, the least deep of equal ones; `None` if plain decoding is at least as fast."""
    best = max(figures, key=lambda entry: entry.speedup)
    return best if best.speedup > 1.0 else None


def variations(setup: DraftingSetup, depth: int) -> tuple[Variation, ...]:
    """Acceptance a little higher and lower; drafting and further rows twice and half as dear.

    Args:
        setup: the figures as given.
        depth: the plan's, 0 for plain decoding.
    """
    changed = {
        f"acceptance {ACCEPTANCE_STEP:g} lower": _shifted(setup, -ACCEPTANCE_STEP),
        f"acceptance {ACCEPTANCE_STEP:g} higher": _shifted(setup, ACCEPTANCE_STEP),
        f"drafting {COST_FACTOR:g} times as dear": _drafting_times(setup, COST_FACTOR),
        f"drafting {COST_FACTOR:g} times as cheap": _drafting_times(setup, 1 / COST_FACTOR),
        f"further rows {COST_FACTOR:g} times as dear": _rows_times(setup, COST_FACTOR),
        f"further rows {COST_FACTOR:g} times as cheap": _rows_times(setup, 1 / COST_FACTOR),
    }
    return tuple(_variation(change, other, depth) for change, other in changed.items())


def _variation(change: str, setup: DraftingSetup, depth: int) -> Variation:
    figures = depth_figures(setup)
    best = best_figures(figures)
    return Variation(
        change=change,
        best_depth=best.depth if best else 0,
        speedup=best.speedup if best else 1.0,
        speedup_unadapted=figures[depth - 1].speedup if depth else 1.0,
    )


def _shifted(setup: DraftingSetup, step: float) -> DraftingSetup:
    """Only chains are varied, so the first rank alone is kept."""
    return replace(setup, acceptance=tuple((min(max(share + step, 0.0), 1.0),) for share in setup.chain_acceptance))


def _drafting_times(setup: DraftingSetup, factor: float) -> DraftingSetup:
    return replace(
        setup,
        draft_cost_per_depth=factor * setup.draft_cost_per_depth,
        draft_cost_per_round=factor * setup.draft_cost_per_round,
    )


def _rows_times(setup: DraftingSetup, factor: float) -> DraftingSetup:
    """What a pass costs beyond a plain one, times a factor."""
    curve, sequences = setup.curve(setup.max_depth), setup.concurrency
    plain = curve.cost(sequences)
    points = {
        rows: plain + factor * (curve.cost(rows) - plain)
        for rows in range(sequences, sequences * (setup.max_depth + 1) + 1, sequences)
    }
    return replace(setup, pass_costs=CostCurve(points))
