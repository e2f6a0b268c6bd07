"""From what a drafter says to what really happens.

A drafter's own probabilities are confidences, not frequencies: some are too
sure, some drift with the text. The policy weighs rows by them, so they are
first mapped to the acceptance that was observed at that confidence and depth.

What is observed is whether a guess equalled the token that was written, which
is known for every guess whose parent was written too, whether or not it was
given a row. So a drafter whose guesses get no rows goes on being judged, and
gets rows again as soon as it deserves them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from headstart.decoding.trees import conditional_probabilities, depths
from headstart.records import Tree

# Bins of the raw probability: equal steps of its logit from -5 to 5 (0.7 % to 99.3 %), and one beyond each end.
_BIN_EDGES = tuple(1 / (1 + math.exp(-logit)) for logit in range(-5, 6))
_NUM_BINS = len(_BIN_EDGES) + 1

# Depths 1 and 2 apart, all deeper ones together.
_NUM_DEPTH_CLASSES = 3

# Neither a node nor the root, whose index is -1.
_NOT_WRITTEN = -2

# With each new observation the old ones of its bin lose this share of their weight: a memory of some 50.
FORGETTING = 0.02

# Weight, in observations, of a bin's prior; and, in expected acceptances, of the belief that a drafter is honest.
PRIOR_WEIGHT = 4.0
TRUST_WEIGHT = 4.0


class Calibrator:
    """Learns how often the guesses of one drafter are accepted.

    Keep one for each drafter (and class of traffic); it is meant to be shared
    by the sequences of that class. For each bin of the raw conditional
    probability and each depth class it holds a Beta distribution with
    exponential forgetting. Its prior is the raw value times the *trust* of the
    depth class, the ratio of accepted to promised guesses over all bins: a
    drafter that is always wrong need not prove it in every bin.
    """

    def __init__(self) -> None:
        """Begin with nothing observed: every guess is believed."""
        cells = _NUM_DEPTH_CLASSES * _NUM_BINS
        self._accepted = [0.0] * cells
        self._observed = [0.0] * cells
        self._accepted_in_class = [0.0] * _NUM_DEPTH_CLASSES
        self._promised_in_class = [0.0] * _NUM_DEPTH_CLASSES

    def calibrate(self, tree: Tree) -> Tree:
        """The same nodes with calibrated path probabilities, which never rise from parent to child.

        Args:
            tree: a drafter's proposal, with its own probabilities.
        """
        if not tree.tokens:
            return tree
        path_probabilities: list[float] = []
        for raw, parent, depth in zip(conditional_probabilities(tree), tree.parents, depths(tree), strict=True):
            reached = path_probabilities[parent] if parent >= 0 else 1.0
            path_probabilities.append(reached * self.conditional(_probability(raw), depth))
        return Tree(tree.tokens, tree.parents, tuple(path_probabilities))

    def conditional(self, raw: float, depth: int) -> float:
        """The calibrated probability of one guess.

        Args:
            raw: the drafter's own, given that the guesses before it are accepted.
            depth: of the guess, from 1.
        """
        depth_class, cell = _place(raw, depth)
        prior = raw * self._trust(depth_class)
        return (PRIOR_WEIGHT * prior + self._accepted[cell]) / (PRIOR_WEIGHT + self._observed[cell])

    def observe(self, tree: Tree, written_tokens: Sequence[int]) -> None:
        """Learn from what was written where the tree guessed.

        Args:
            tree: the drafter's whole proposal, as it came: uncalibrated, nodes
                that got no rows included.
            written_tokens: the tokens that became final after the tree's root,
                first to last; usually a round's. More of them judge more nodes.
        """
        if not tree.tokens:
            return
        conditionals = conditional_probabilities(tree)
        # A guess is judged if its parent was written. Parents come first, so one pass suffices.
        written_node = [-1] + [_NOT_WRITTEN] * len(written_tokens)  # the node that was written at each depth
        for node, (depth, parent) in enumerate(zip(depths(tree), tree.parents, strict=True)):
            if depth > len(written_tokens) or written_node[depth - 1] != parent:
                continue
            accepted = tree.tokens[node] == written_tokens[depth - 1]
            if accepted:
                written_node[depth] = node
            self._count(_probability(conditionals[node]), depth, accepted)

    def best_conditionals(self) -> tuple[float, ...]:
        """The highest conditional acceptance that a guess could be given now, at depth 1, 2, and 3 or more."""
        best: list[float] = []
        for depth_class in range(_NUM_DEPTH_CLASSES):
            trust = self._trust(depth_class)
            cells = slice(depth_class * _NUM_BINS, (depth_class + 1) * _NUM_BINS)
            best.append(
                max(
                    (PRIOR_WEIGHT * raw * trust + accepted) / (PRIOR_WEIGHT + observed)
                    for raw, accepted, observed in zip(
                        (*_BIN_EDGES, 1.0), self._accepted[cells], self._observed[cells], strict=True
                    )
                )
            )
        return tuple(best)

    def least_raw(self, calibrated: float) -> float:
        """The lowest raw probability of a first guess that calibrates to about `calibrated` or more; 1 if none does.

        Between the edges of bins it is interpolated: they are far apart where thresholds usually lie.
        """
        below, reached_below = 0.0, 0.0
        for edge in (0.0, *_BIN_EDGES, 1.0):
            reached = self.conditional(edge, 1)
            if reached >= calibrated:
                share = (calibrated - reached_below) / (reached - reached_below) if reached > reached_below else 1.0
                return below + min(max(share, 0.0), 1.0) * (edge - below)
            below, reached_below = edge, reached
        return 1.0

    def _trust(self, depth_class: int) -> float:
        accepted, promised = self._accepted_in_class[depth_class], self._promised_in_class[depth_class]
        return min((TRUST_WEIGHT + accepted) / (TRUST_WEIGHT + promised), 1.0)

    def _count(self, raw: float, depth: int, accepted: bool) -> None:
        depth_class, cell = _place(raw, depth)
        keep = 1.0 - FORGETTING
        self._accepted[cell] = keep * self._accepted[cell] + accepted
        self._observed[cell] = keep * self._observed[cell] + 1.0
        self._accepted_in_class[depth_class] = keep * self._accepted_in_class[depth_class] + accepted
        self._promised_in_class[depth_class] = keep * self._promised_in_class[depth_class] + raw


def _place(raw: float, depth: int) -> tuple[int, int]:
    """The depth class of a guess, and the cell of its bin."""
    depth_class = min(depth, _NUM_DEPTH_CLASSES) - 1
    return depth_class, depth_class * _NUM_BINS + bisect_right(_BIN_EDGES, raw)


def _probability(raw: float) -> float:
    """`raw` as a probability; what is not a number promises nothing."""
    if 0.0 <= raw <= 1.0:
        return raw
    return 1.0 if raw > 1.0 else 0.0
