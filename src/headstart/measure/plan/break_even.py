"""What a chain of each depth brings, and from which acceptance on.

    speed-up = tau / (v + c),  tau = 1 + s_1 + s_2 + ...,  s_k = a_1 * ... * a_k

with the conditional acceptance a_k, the cost of checking v = C(N (depth + 1)) / C(N) for N sequences, and the cost of
drafting c.

Source: Leviathan et al. 2211.17192, theorem 3.8, for which v is 1 and all a_k are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.policy import expected_speedup
from headstart.decoding.trees import chain
from headstart.measure.plan.setup import DraftingSetup
from headstart.records import Tree

# Halvings of [0, 1] until what is left is far below anything that can be measured.
_HALVINGS = 52


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthFigures:
    """A round whose chain goes to one depth.

    Attributes:
        depth: guesses in the chain.
        acceptance: conditional, of the last of them.
        survival: the probability that all of them are kept.
        mean_acceptance_length: tokens a round, the trunk's own included.
        check_cost: v, of a pass that checks them, in plain passes.
        draft_cost: c, in plain passes.
        speedup: over plain decoding.
        break_even_acceptance: the acceptance, the same at each depth, at which a chain of this depth neither gains nor
            loses; `None` if it loses though all is accepted.
    """

    depth: int
    acceptance: float
    survival: float
    mean_acceptance_length: float
    check_cost: float
    draft_cost: float
    speedup: float
    break_even_acceptance: float | None


def depth_figures(setup: DraftingSetup) -> tuple[DepthFigures, ...]:
    """The figures of depth 1 to `max_depth`."""
    curve = setup.curve(setup.max_depth)
    plain = curve.cost(setup.concurrency)
    figures = []
    for depth in range(1, setup.max_depth + 1):
        tree = chain(range(depth), setup.chain_acceptance[:depth])
        check_cost = curve.cost(setup.concurrency * (depth + 1)) / plain
        figures.append(
            DepthFigures(
                depth=depth,
                acceptance=setup.chain_acceptance[depth - 1],
                survival=tree.path_probabilities[-1],
                mean_acceptance_length=1.0 + sum(tree.path_probabilities),
                check_cost=check_cost,
                draft_cost=setup.draft_cost(depth),
                speedup=round_speedup(setup, tree, depth, curve),
                break_even_acceptance=even_acceptance(check_cost + setup.draft_cost(depth), depth),
            )
        )
    return tuple(figures)


def break_even_acceptance(figures: Sequence[DepthFigures]) -> float | None:
    """The least acceptance, the same at each depth, from which on drafting to some depth pays.

    Args:
        figures: of the depths that are open.

    Returns:
        A share; `None` if nothing pays though all is accepted.
    """
    found = [entry.break_even_acceptance for entry in figures]
    return min((share for share in found if share is not None), default=None)


def round_speedup(setup: DraftingSetup, tree: Tree, depth: int, curve: CostCurve) -> float:
    """The speed-up if every sequence drafts a tree like this one in every round.

    Args:
        setup: concurrency and draft cost are taken from it.
        tree: of one sequence.
        depth: of the tree.
        curve: `setup.curve` that reaches as far as the tree needs.
    """
    draft_s = setup.draft_cost(depth) * curve.cost(setup.concurrency)
    return expected_speedup([tree] * setup.concurrency, setup.concurrency, curve, draft_s)


def even_acceptance(tokens: float, depth: int) -> float | None:
    """The acceptance, the same at each of `depth` depths, that makes so many tokens a round; `None` if none does.

    Args:
        tokens: mean acceptance length, the trunk's own token included; at least 1.
        depth: of the chain.
    """
    if tokens > depth + 1:
        return None
    low, high = 0.0, 1.0  # tokens rise with acceptance, and suffice at `high`
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = sum(middle**power for power in range(depth + 1)) >= tokens
        low, high = (low, middle) if enough else (middle, high)
    return high
