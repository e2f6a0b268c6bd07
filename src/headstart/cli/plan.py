"""`headstart plan`: whether drafting would pay, from figures alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headstart.cli.plan_flags import (
    MAX_NODES,
    MachineFlags,
    PlanFlags,
    read_acceptance,
    read_cost_curve,
    read_entropy,
)
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.decoding.cost_curve import CostCurve
    from headstart.measure.plan import DraftingSetup, Plan, Roofline

_FLAGS, _MACHINE = PlanFlags(), MachineFlags()

# Rows for which the bound is told: what a processor, a card, a server may check at once.
_BOUND_ROWS = (4, 16, 64, 256)


def plan(
    *,
    acceptance: Annotated[
        str,
        Parameter(
            help="How often the guess at depth 1, 2, ... is right if those before it were, such as 0.9,0.8; those of "
            "second and third guesses after a slash: 0.9/0.05,0.8/0.1."
        ),
    ],
    draft_cost: Annotated[float, Parameter(help="Of one depth of guesses, in plain passes.")] = 0.0,
    draft_cost_per_round: Annotated[float, Parameter(help="Of guessing besides, however deep, in plain passes.")] = 0.0,
    flags: PlanFlags = _FLAGS,
    machine: MachineFlags = _MACHINE,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> None:
    """Work out what drafting would bring, and when it would stop to pay. No model is needed.

    Speed-up, best depth and tree, break-even acceptance, and what changes them, from acceptance, the cost of drafting
    and the cost of further rows in a pass.
    """
    roofline = machine.to_roofline()
    if roofline is not None and flags.cost_curve is not None:
        raise ConfigError("--cost-curve is what a machine's flags would compute: give one or the other.")
    shares = read_acceptance(acceptance)
    has_ranks = any(len(ranks) > 1 for ranks in shares)
    if flags.max_nodes is not None and not (has_ranks and flags.max_nodes >= 1):
        raise ConfigError(
            f"--max-nodes {flags.max_nodes}: it must be at least 1, and has an effect only on trees, for which "
            "--acceptance has second guesses: 0.9/0.05,0.8/0.1."
        )

    # late: they bring what --help can do without
    from headstart.cli.results import print_json
    from headstart.decoding.cost_curve import CostCurve
    from headstart.measure.plan import DraftingSetup, make_plan, most_kept_guesses
    from headstart.measure.plan.plot import plot_plan

    pass_costs: CostCurve | Roofline
    if roofline is not None:
        pass_costs = roofline
    elif flags.cost_curve is not None:
        pass_costs = read_cost_curve(flags.cost_curve)
    else:
        pass_costs = CostCurve({1: 1.0, 2: 1.0})
    setup = DraftingSetup(
        acceptance=shares,
        pass_costs=pass_costs,
        draft_cost_per_depth=draft_cost,
        draft_cost_per_round=draft_cost_per_round,
        concurrency=flags.concurrency,
        max_depth=len(shares) if flags.max_depth is None else flags.max_depth,
    )
    worked_out = make_plan(setup, flags.max_nodes or MAX_NODES)
    bounds: dict[int, float] = {}
    if flags.entropy is not None:
        mean, second = read_entropy(flags.entropy)
        bounds = {rows: most_kept_guesses(rows, mean, second) for rows in _BOUND_ROWS}
    notes = _notes(pass_costs, flags, _most_rows(setup, worked_out))
    if flags.plot is not None:
        plot_plan(worked_out, flags.plot)
    if json:
        bound_document = [{"rows": rows, "guesses": guesses} for rows, guesses in bounds.items()]
        print_json({**worked_out.to_json(), "most_kept_guesses": bound_document, "notes": notes})
    else:
        print("\n".join(_account(worked_out, bounds, notes)))


def _most_rows(setup: DraftingSetup, worked_out: Plan) -> int:
    """Rows of the largest pass that anything is said of."""
    of_tree = 0 if worked_out.tree is None else len(worked_out.tree.tree)
    beside = [entry.concurrency * (entry.best_depth + 1) for entry in worked_out.by_concurrency]
    return max(setup.concurrency * (1 + max(setup.max_depth, of_tree)), *beside, 1)


def _notes(pass_costs: CostCurve | Roofline, flags: PlanFlags, num_rows: int) -> list[str]:
    """What was taken for granted."""
    from headstart.measure.plan import Roofline

    if isinstance(pass_costs, Roofline):
        free = f"Rows come nearly free up to {pass_costs.balanced_rows:.0f} in a pass"
        if pass_costs.experts is not None:
            free = "Each row reads experts of its own until most are read anyway"
        return [
            f"{free}, at this machine's full speed; no engine reaches all of it. A measured --cost-curve tells more."
        ]
    if flags.cost_curve is None:
        return [
            "No cost of further rows is given: checking guesses is taken to cost nothing, and sequences beside one "
            "another likewise. Give --cost-curve, or a machine."
        ]
    last = max(pass_costs.points)
    if len(pass_costs.points) == 1:
        return ["The cost curve has one point, so every further row is taken to cost in full."]
    if num_rows > last:
        return [f"The cost curve ends at {last} rows; up to {num_rows} it is taken to go on as it did last."]
    return []


def _account(worked_out: Plan, bounds: dict[int, float], notes: list[str]) -> list[str]:
    lines = ["depth  accepted   kept  tokens  check  draft  speed-up  breaks even at"]
    for entry in worked_out.depths:
        needed = "never" if entry.break_even_acceptance is None else f"{entry.break_even_acceptance:.3f}"
        best = "  <- best" if entry.depth == worked_out.best_depth else ""
        lines.append(
            f"{entry.depth:5}  {entry.acceptance:8.3f}  {entry.survival:5.3f}  {entry.mean_acceptance_length:6.2f}  "
            f"{entry.check_cost:5.2f}  {entry.draft_cost:5.2f}  {entry.speedup:8.2f}  {needed:>14}{best}"
        )
    lines += ["", *_verdict(worked_out)]
    tree = worked_out.tree
    if tree is not None and tree.depth:
        lines.append(
            f"The best tree has {len(tree.tree)} guesses, {tree.depth} deep: {tree.mean_acceptance_length:.2f} tokens "
            f"a round, {tree.speedup:.2f} times plain speed."
        )
    elif tree is not None:
        lines.append("No tree pays." if worked_out.best_depth else "No tree pays either.")
    lines += ["", "if                            speed-up  best depth"]
    lines += [
        f"{variation.change:28}  {variation.speedup:8.2f}  {variation.best_depth:10}"
        for variation in worked_out.variations
    ]
    if worked_out.by_concurrency:
        lines += ["", "sequences  speed-up  best depth"]
        lines += [
            f"{entry.concurrency:9}  {entry.speedup:8.2f}  {entry.best_depth:10}" for entry in worked_out.by_concurrency
        ]
    if bounds:
        told = ", ".join(f"{tokens:.1f} of {rows} rows" for rows, tokens in bounds.items())
        lines += ["", f"Whoever drafts, hardly more guesses are kept than {told}: only the rows' logarithm counts."]
    if notes:
        lines += ["", *(f"note: {note}" for note in notes)]
    return lines


def _verdict(worked_out: Plan) -> list[str]:
    needed = worked_out.break_even_acceptance
    if worked_out.best_depth:
        lines = [f"Draft {worked_out.best_depth} deep: {worked_out.speedup:.2f} times plain speed."]
    elif worked_out.tree is not None and worked_out.tree.depth:
        lines = ["Draft trees: no chain of guesses pays."]
    else:
        lines = ["Do not draft: plain decoding is as fast or faster."]
    if needed is None:
        lines.append("Nothing would pay, though every guess were right.")
    else:
        lines.append(f"Some depth pays from an acceptance of {needed:.3f} on, if it is the same at every depth.")
    if worked_out.pays_up_to:
        lines.append(f"It pays up to {worked_out.pays_up_to} sequences at once.")
    return lines
