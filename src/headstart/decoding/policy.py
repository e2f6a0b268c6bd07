"""Rows go to the likeliest tokens: which drafted nodes a pass should carry.

Every row of a pass has a probability of being kept: 1 for a sequence's root and
for prompt tokens, the calibrated path probability for a drafted node. Rows are
given in that order, and as many as make *expected kept tokens / time* largest.
Draft depth, tree size, the confidence stop, fewer drafts as the batch grows and
plain decoding when nothing pays all follow from this one rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.trees import prune
from headstart.records import EMPTY_TREE, Tree

# A gain below this share is within the noise of the curve and of the calibration, and what looks best of many
# estimates is likely to be one that errs upward; plain decoding, whose cost is certain, has the right of way.
MARGIN = 0.05

# While nothing pays, probing whether that has changed may take this share of the decoding time.
PROBE_SHARE = 0.01

# The ledger remembers some 50 rounds. A single bet may cost a pass or two, so that much is no verdict yet.
LEDGER_FORGETTING = 0.02
TOLERATED_LOSS = 3.0

# Passes that earlier gains may stand in for later losses: the next text may be of another kind.
MOST_CREDIT = 6.0

# Rounds without drafts after a loss; twice as many after each further one.
FIRST_REST = 32
LONGEST_REST = 256

# A loss that is small but does not end, as of asking many sequences in vain, is spread over rounds without drafts
# until it is this share of the time. It is found over some 100 rounds, and what rare gains may yet repay is let pass.
STEADY_FORGETTING = 0.01
STEADY_LOSS = 0.004
AWAITED_GAIN = 0.5


def allocate(trees: Sequence[Tree], fixed_rows: int, cost: CostCurve, max_rows: int) -> list[Tree]:
    """Give rows to the nodes that raise the rate of kept tokens.

    All counts of nodes are tried, not only until the first that does not help:
    C has steps, and a row that does not pay alone may pay with the seven that
    follow it in its tile. What drafting took is spent whatever is decided here,
    so it does not count; whether to draft at all is asked of `max_useful_nodes`.

    Args:
        trees: one for each decoding sequence, calibrated; empty ones are welcome.
        fixed_rows: rows that run anyway, each kept for certain: the sequences'
            roots and prompt tokens. At least 1.
        cost: the measured curve.
        max_rows: rows of a pass at most, the fixed ones included.

    Returns:
        For each tree the part that is given rows, in the order of `trees`.
    """
    # The sort is stable and a parent is never less likely than its child, so parents come first.
    candidates = sorted(
        [(probability, index) for index, tree in enumerate(trees) for probability in tree.path_probabilities],
        key=_probability,
        reverse=True,
    )
    _, best_count = best_rate([probability for probability, _ in candidates], fixed_rows, cost, max_rows)
    keep_counts = [0] * len(trees)
    for _, index in candidates[:best_count]:
        keep_counts[index] += 1
    return [prune(tree, count) if count else EMPTY_TREE for tree, count in zip(trees, keep_counts, strict=True)]


def best_rate(
    probabilities: Sequence[float], fixed_rows: int, cost: CostCurve, max_rows: int, draft_cost_s: float = 0.0
) -> tuple[float, int]:
    """The best rate of kept tokens, and how many nodes that takes.

    Args:
        probabilities: path probabilities of the nodes at hand, likeliest first.
        fixed_rows: rows that run anyway, each kept for certain. At least 1.
        cost: the measured curve.
        max_rows: rows of a pass at most, the fixed ones included.
        draft_cost_s: seconds that are yet to be spent to have these nodes.

    Returns:
        Tokens a second, and the number of nodes; with none, the rate is that of
        plain decoding raised by `MARGIN`, which nodes have to beat.
    """
    kept_tokens = float(fixed_rows)
    best = (1 + MARGIN) * kept_tokens / cost.cost(fixed_rows)
    best_count = 0
    seconds = cost.costs(fixed_rows + 1, min(fixed_rows + len(probabilities), max_rows))
    for count, (probability, pass_s) in enumerate(zip(probabilities, seconds, strict=False), start=1):
        kept_tokens += probability
        rate = kept_tokens / (pass_s + draft_cost_s)
        if rate > best:
            best, best_count = rate, count
    return best, best_count


def max_useful_nodes(
    conditionals: Sequence[float],
    num_sequences: int,
    fixed_rows: int,
    cost: CostCurve,
    max_rows: int,
    draft_cost_s: float = 0.0,
    draft_cost_per_node_s: float = 0.0,
) -> int:
    """How many nodes a sequence can use at best, so that no drafter builds what cannot pay.

    Args:
        conditionals: the highest conditional acceptance to be hoped for at depth
            1, 2, ...; the last one holds for all deeper ones
            (`Calibrator.best_conditionals`). At least one.
        num_sequences: sequences that would draft, at least 1.
        fixed_rows: rows that run anyway; at least `num_sequences`.
        cost: the measured curve.
        max_rows: rows of a pass at most, the fixed ones included.
        draft_cost_s: seconds that drafting for this pass would take.
        draft_cost_per_node_s: further seconds for each node of a sequence: a
            drafter that is a model runs a pass for each depth of its chains.

    Returns:
        The nodes to ask for each sequence; 0 if plain decoding is at least as fast.
    """
    kept_tokens = float(fixed_rows)
    best_rate = (1 + MARGIN) * kept_tokens / cost.cost(fixed_rows)
    best_count = 0
    survival = 1.0
    for count in range(1, (max_rows - fixed_rows) // num_sequences + 1):
        survival *= conditionals[min(count, len(conditionals)) - 1]
        kept_tokens += num_sequences * survival
        seconds = cost.cost(fixed_rows + num_sequences * count) + draft_cost_s + draft_cost_per_node_s * count
        if kept_tokens / seconds > best_rate:
            best_rate, best_count = kept_tokens / seconds, count
    return best_count


def least_useful_probability(fixed_rows: int, cost: CostCurve, max_rows: int) -> float:
    """The path probability below which no node can pay, with the cheapest rows that a pass may add."""
    dearest = (1 + MARGIN) * fixed_rows / cost.cost(fixed_rows)
    needed = (
        (dearest * pass_s - fixed_rows) / count
        for count, pass_s in enumerate(cost.costs(fixed_rows + 1, max_rows), start=1)
    )
    return max(min(needed, default=1.0), 0.0)


def expected_speedup(trees: Sequence[Tree], fixed_rows: int, cost: CostCurve, draft_cost_s: float = 0.0) -> float:
    """Expected rate of kept tokens with these nodes, over the rate of the fixed rows alone.

    For one decoding sequence this is tau / (v + c).
    """
    num_nodes = sum(len(tree) for tree in trees)
    kept_tokens = fixed_rows + sum(sum(tree.path_probabilities) for tree in trees)
    seconds = cost.cost(fixed_rows + num_nodes) + draft_cost_s
    return (kept_tokens / fixed_rows) * (cost.cost(fixed_rows) / seconds)


class Ledger:
    """What drafting has earned and cost lately; after a loss it rests for a while, and often while it loses a little.

    Every decision to draft rests on estimates, and of many estimates the one
    that is acted on is likely to err upward. The ledger holds the decisions
    against what came of them, so that a loss ends whatever the estimates say.
    """

    def __init__(self) -> None:
        """Begin even."""
        self._balance = 0.0  # in passes, recent rounds weighing most
        self._steady = 0.0  # the same over more rounds
        self._rest = FIRST_REST
        self._rounds_left = 0

    def rests(self) -> bool:
        """Whether this round shall do without drafts; to be asked once a round."""
        if self._rounds_left == 0:
            return False
        self._rounds_left -= 1
        return True

    def enter(self, saved_s: float, spent_s: float, pass_s: float) -> None:
        """Account for a round that asked a drafter, or weighed whether to.

        Args:
            saved_s: seconds of plain passes that its kept guesses spared.
            spent_s: seconds of asking, and of the rows that guesses were given.
            pass_s: seconds of a plain pass.
        """
        gain = (saved_s - spent_s) / pass_s
        self._balance = min((1 - LEDGER_FORGETTING) * self._balance + gain, MOST_CREDIT)
        self._steady = min((1 - STEADY_FORGETTING) * self._steady + gain, MOST_CREDIT)
        if self._balance < -TOLERATED_LOSS:
            self._rounds_left = self._rest
            self._rest = min(2 * self._rest, LONGEST_REST)
            self._balance = 0.0
            return
        if self._balance > TOLERATED_LOSS:
            self._rest = FIRST_REST
        loss_of_round = (-self._steady - AWAITED_GAIN) * STEADY_FORGETTING
        self._rounds_left = max(int(loss_of_round / STEADY_LOSS), 0)


class ProbeSchedule:
    """Lets a drafter that does not pay at present show now and then that it would.

    A drafter that is never asked is never observed, and would never be asked
    again. So it is asked, though its nodes need not be given rows, as often as
    `PROBE_SHARE` of the time allows: a lookup in every round, heads now and
    then, a model of its own rarely.
    """

    def __init__(self) -> None:
        """Begin without credit."""
        self._credit = 0.0

    def allows(self, draft_cost: float) -> bool:
        """Whether to ask in this round, though it does not pay; to be called in each such round.

        Args:
            draft_cost: time of asking, as a share of the pass's.
        """
        self._credit = min(self._credit, draft_cost) + PROBE_SHARE
        if self._credit < draft_cost:
            return False
        self._credit -= draft_cost
        return True


def _probability(candidate: tuple[float, int]) -> float:
    return candidate[0]
