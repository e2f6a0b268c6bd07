"""What is known of one drafter's guesses: how often they are right, and what its trees are usually worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from headstart.decoding.calibration import Calibrator
from headstart.records import Tree

# With each new tree the old ones lose this share of their weight: a memory of some fifty trees over all sequences,
# and of some ten of one sequence.
FORGETTING = 0.02
FORGETTING_OF_SEQUENCE = 0.1

# Trees before a drafter is judged by them, over all sequences and again for each: a single one may be any, a text
# may suit a drafter that others did not, and the beginning of one is harder than the rest.
FAIR_TRIAL = 8
FAIR_TRIAL_OF_SEQUENCE = 4

# With each new guess that was judged, likewise; and the weight of the belief that all are right.
FORGETTING_OF_DEPTHS = 0.02
BELIEF_IN_DEPTHS = 2.0


class TypicalTree:
    """How likely the likeliest node of a tree is on average, the second likeliest, and so on.

    Attributes:
        probabilities: calibrated path probabilities, descending; none before the first tree.
    """

    __slots__ = ("_forgetting", "_last", "_num_believed", "_trees_to_come", "probabilities")

    def __init__(self, forgetting: float, earlier: TypicalTree | None = None) -> None:
        """Begin with what `earlier` knows.

        Args:
            forgetting: share of the weight that old trees lose with each new one.
            earlier: of more sequences, to be believed until this one has shown its own.
        """
        self._forgetting = forgetting
        self.probabilities: list[float] = []
        self._last: Sequence[float] = ()
        self._num_believed = 0
        self._trees_to_come = FAIR_TRIAL if earlier is None else FAIR_TRIAL_OF_SEQUENCE
        if earlier is not None and earlier.probabilities:
            self.probabilities = earlier.probabilities
            self._num_believed = round(1 / forgetting)

    @property
    def on_trial(self) -> bool:
        """Whether too few trees were seen to judge by them."""
        return self._trees_to_come > 0

    @property
    def expected(self) -> Sequence[float]:
        """What the next tree may be like: an average one, or the last one if that was better.

        Texts change their kind within a few tokens. One good tree earns the drafter another look.
        """
        return max(self.probabilities, self._last, key=sum)

    @property
    def hoped(self) -> Sequence[float]:
        """The same, but that its best node is hoped to be right for certain, whatever the trees so far were like."""
        return (1.0, *self.expected[1:])

    def learn(self, probabilities: Sequence[float]) -> None:
        """Take in a tree.

        Args:
            probabilities: its path probabilities, descending.
        """
        self._num_believed += 1
        self._trees_to_come -= 1
        self._last = probabilities
        share = max(self._forgetting, 1 / self._num_believed)
        self.probabilities = [
            old + share * (new - old) for old, new in zip_longest(self.probabilities, probabilities, fillvalue=0.0)
        ]


class DraftRecord:
    """One drafter's record in one class of traffic.

    Attributes:
        calibrator: from its own probabilities to frequencies.
        typical: its tree on average.
    """

    def __init__(self) -> None:
        """Begin with every guess believed."""
        self.calibrator = Calibrator()
        self.typical = TypicalTree(FORGETTING)
        self._continued = BELIEF_IN_DEPTHS
        self._reached = BELIEF_IN_DEPTHS

    @property
    def continuation(self) -> float:
        """How often one of the children is right, if a node with children is; above 0."""
        return self._continued / self._reached

    def observe(self, tree: Tree, written_tokens: Sequence[int]) -> None:
        """Learn from what was written; see `Calibrator.observe`."""
        self.calibrator.observe(tree, written_tokens)
        node = -1
        for depth, token in enumerate(written_tokens):
            children = [child for child, parent in enumerate(tree.parents) if parent == node]
            right = [child for child in children if tree.tokens[child] == token]
            if depth > 0 and children:
                keep = 1.0 - FORGETTING_OF_DEPTHS
                self._continued = keep * self._continued + bool(right)
                self._reached = keep * self._reached + 1.0
            if not right:
                return
            node = right[0]
