"""All that a plan says, in one record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.trees import path_tokens
from headstart.measure.plan.best_tree import BestTree, best_tree
from headstart.measure.plan.break_even import DepthFigures, break_even_acceptance, depth_figures
from headstart.measure.plan.sensitivity import Variation, best_figures, variations
from headstart.measure.plan.setup import DraftingSetup

# Far more sequences than most servers decode together.
MOST_CONCURRENCY = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ConcurrencyFigures:
    """The best chain when so many sequences share a pass.

    Attributes:
        concurrency: the sequences.
        best_depth: 0 if plain decoding is at least as fast.
        speedup: at that depth.
    """

    concurrency: int
    best_depth: int
    speedup: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Whether drafting pays, how deep, and what would change that.

    Attributes:
        best_depth: of the chain that pays best; 0 if plain decoding is at least as fast.
        speedup: at that depth, over plain decoding; 1 for plain decoding.
        break_even_acceptance: the least acceptance, the same at each depth, from which on some depth pays; `None` if
            none does though all is accepted.
        depths: the figures of each depth.
        tree: the best one, if acceptance by rank was given.
        variations: what becomes of it if a figure is off.
        by_concurrency: for 1, 2, 4, ... sequences; empty if nothing is known of so many rows.
        pays_up_to: sequences beyond which drafting first fails to pay, 0 if it never does; `None` if it pays at all
            that were looked at, or nothing is known. With experts it may pay again at more, when most of them are
            read anyway.
    """

    best_depth: int
    speedup: float
    break_even_acceptance: float | None
    depths: tuple[DepthFigures, ...]
    tree: BestTree | None
    variations: tuple[Variation, ...]
    by_concurrency: tuple[ConcurrencyFigures, ...]
    pays_up_to: int | None

    def to_json(self) -> dict[str, Any]:
        """As plain data; a tree as its speed-up and the ranks on the way to each node."""
        document = asdict(self)
        if self.tree is not None:
            tree = self.tree.tree
            document["tree"] = {
                "nodes": len(tree),
                "depth": self.tree.depth,
                "mean_acceptance_length": self.tree.mean_acceptance_length,
                "speedup": self.tree.speedup,
                "paths": [list(path_tokens(tree, node)) for node in range(len(tree))],
            }
        return document


def make_plan(setup: DraftingSetup, max_nodes: int) -> Plan:
    """Work everything out.

    Args:
        setup: the figures.
        max_nodes: nodes of a sequence's tree at most; without effect if no depth has acceptance by rank.
    """
    figures = depth_figures(setup)
    best = best_figures(figures)
    depth = best.depth if best else 0
    by_concurrency, pays_up_to = _over_concurrency(setup)
    return Plan(
        best_depth=depth,
        speedup=best.speedup if best else 1.0,
        break_even_acceptance=break_even_acceptance(figures),
        depths=figures,
        tree=best_tree(setup, max_nodes) if any(len(ranks) > 1 for ranks in setup.acceptance) else None,
        variations=variations(setup, depth),
        by_concurrency=by_concurrency,
        pays_up_to=pays_up_to,
    )


def _over_concurrency(setup: DraftingSetup) -> tuple[tuple[ConcurrencyFigures, ...], int | None]:
    """The figures at powers of two, and the last number of sequences before drafting first fails to pay."""
    most = MOST_CONCURRENCY
    if isinstance(setup.pass_costs, CostCurve):
        # beyond its last point a curve is a guess, and one drafted row for each sequence must lie before it
        most = min(most, max(setup.pass_costs.points) // 2)
    if most < 2:
        return (), None
    by_concurrency = tuple(_at_concurrency(setup, 1 << exponent) for exponent in range(most.bit_length()))
    fails = next((entry.concurrency for entry in by_concurrency if not entry.best_depth), None)
    if fails is None:
        return by_concurrency, None
    pays = fails // 2
    while fails - pays > 1:
        middle = (pays + fails) // 2
        pays, fails = (middle, fails) if _at_concurrency(setup, middle).best_depth else (pays, middle)
    return by_concurrency, pays


def _at_concurrency(setup: DraftingSetup, concurrency: int) -> ConcurrencyFigures:
    best = best_figures(depth_figures(replace(setup, concurrency=concurrency)))
    return ConcurrencyFigures(
        concurrency=concurrency, best_depth=best.depth if best else 0, speedup=best.speedup if best else 1.0
    )
