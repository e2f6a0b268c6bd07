"""Whether a drafter is worth asking, for whom, and how far it should go.

Four things are held against each other: what its guesses have come to, what
they cost, what is at hand without it, and how the account of the last rounds
stands. A cheap drafter is asked whenever its best guesses could pay; a dear one
only if its usual ones would, on top of what cheaper ones have found.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceABC
from dataclasses import dataclass, field
from itertools import zip_longest

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.policy import (
    MARGIN,
    Ledger,
    ProbeSchedule,
    best_rate,
    least_useful_probability,
    max_useful_nodes,
)
from headstart.decoding.trees import depths
from headstart.engine.draft_config import DraftConfig
from headstart.engine.draft_cost import DraftCosts
from headstart.engine.draft_record import (
    FAIR_TRIAL_OF_SEQUENCE,
    FORGETTING_OF_SEQUENCE,
    DraftRecord,
    TypicalTree,
)
from headstart.engine.scheduler import Round
from headstart.engine.sequence import Sequence
from headstart.records import EMPTY_TREE, Tree

# Rounds for which an estimate of what can pay at best is good: working it out may cost some percent of a pass.
REFRESH_ROUNDS = 32

# Depth at most before it is known what a depth costs. What is learnt from deeper tries would speak for deep trees only.
FIRST_DEPTH = 1

# For trees of a new text, to learn whether they are better than those of others, this share of its time may be spent.
TRIAL_SHARE = 0.02

# Reading a text that was missed is an outlay for rounds to come; so many share it.
READING_ROUNDS = 32


@dataclass(slots=True, eq=False)
class Asker:
    """A sequence that could use guesses in this pass.

    Attributes:
        round: its part in the pass.
        max_depth: depth at most.
        tree: what was found for it so far.
        backlog: tokens that the drafter at hand has missed.
    """

    round: Round
    max_depth: int
    tree: Tree = EMPTY_TREE
    backlog: int = 0

    @property
    def sequence(self) -> Sequence:
        """Who it is."""
        return self.round.sequence

    @property
    def samples(self) -> bool:
        """Its class of traffic: whether its tokens are sampled, or the likeliest ones."""
        return self.sequence.params.temperature > 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a drafter should go; see `DraftRequest`. Probabilities are by its own count."""

    max_nodes: int
    max_depth: int
    min_path_probability: float = 0.0
    min_parent_probability: float = 0.0


Plan = list[tuple[Asker, Limits]]


@dataclass(slots=True)
class _Outlook:
    """What a drafter can bring at best, for some rounds of the same situation."""

    situation: object = None
    max_nodes: int = 0
    max_depth: int = 0
    min_path_probability: dict[bool, float] = field(default_factory=dict)  # by class of traffic
    age: int = 0  # rounds since it was worked out


class DraftWorth:
    """Judges one drafter."""

    def __init__(self, config: DraftConfig, cost: CostCurve) -> None:
        """Begin with every guess believed, and drafting thought to be free.

        Args:
            config: bounds of what is drafted.
            cost: of a trunk pass.
        """
        self._config = config
        self._cost = cost
        self._records: dict[bool, DraftRecord] = {}  # by class of traffic
        self._typical: dict[int, TypicalTree] = {}  # by sequence
        self._costs = DraftCosts()
        self._ledger = Ledger()
        self._probe = ProbeSchedule()
        self._outlook = _Outlook()
        self._asking_s = 0.0  # seconds that the last asking or weighing counts for
        self._is_trial = False  # the last plan asks for less than would be wanted, to learn what it costs or is worth

    def rests(self) -> bool:
        """Whether this pass shall do without the drafter after a loss; to be called once a pass that has askers."""
        return self._ledger.rests()

    def plan(self, askers: SequenceABC[Asker], fixed_rows: int, max_rows: int) -> Plan:
        """Whom to ask for in this pass, and how far; to be called once a pass in which the drafter does not rest.

        Args:
            askers: at least one.
            fixed_rows: rows that run anyway.
            max_rows: rows of the pass at most.
        """
        if not self._costs.of(len(askers)).is_known:
            # what it costs can be learnt from one sequence, without reading the texts of all
            askers = [_cheapest(askers)]
        outlook = self._look_out(askers, fixed_rows, max_rows)
        cost = self._costs.of(len(askers))
        is_hopeless = outlook.max_nodes == 0 or outlook.max_depth == 0
        self._is_trial = is_hopeless or not cost.is_known
        if is_hopeless:
            return [(asker, Limits(1, 1)) for asker in self._probed(askers, self._costs.of(1).cost(1), fixed_rows)]
        if cost.usual > MARGIN * self._cost.cost(fixed_rows):
            return self._weigh(askers, fixed_rows, max_rows)
        # what costs less than the margin of every decision is not worth weighing
        return [(asker, self._limits(asker, 0.0)) for asker in askers]

    def calibrate(self, asker: Asker, tree: Tree) -> Tree:
        """The tree with calibrated probabilities; remembered as one that the drafter gave, unless it was a trial."""
        record = self._record(asker.samples)
        calibrated = record.calibrator.calibrate(tree)
        if tree.tokens and not self._is_trial:
            probabilities = _descending(calibrated)
            self._typical_of(asker).learn(probabilities)
            record.typical.learn(probabilities)
        return calibrated

    def observe_asking(self, askers: SequenceABC[Asker], trees: SequenceABC[Tree], seconds: float) -> None:
        """Learn what asking took.

        Args:
            askers: for whom.
            trees: what each was given.
            seconds: in all.
        """
        depth = max(max(depths(tree), default=0) for tree in trees)
        backlog = sum(asker.backlog for asker in askers)
        if depth:
            self._costs.observe(depth, len(askers), backlog, seconds)
        # reading is an outlay for rounds to come, and no fault of this one's guesses
        self._asking_s = self._costs.of(len(askers)).cost(depth) if backlog else seconds

    def observe_weighing(self, seconds: float) -> None:
        """Note what it took to find that nobody is to be asked; with many sequences that is no trifle."""
        self._asking_s = seconds

    def observe(self, sequence: Sequence, tree: Tree, written_tokens: SequenceABC[int]) -> None:
        """Learn how guesses fared."""
        self._record(sequence.params.temperature > 0.0).observe(tree, written_tokens)

    def enter(self, saved_s: float, rows_s: float, pass_s: float) -> None:
        """Account for a pass that was planned, after what was observed of it; see `Ledger.enter`.

        Args:
            saved_s: seconds that kept guesses saved.
            rows_s: seconds that the rows of guesses took.
            pass_s: seconds of a pass without guesses.
        """
        self._ledger.enter(saved_s, self._asking_s + rows_s, pass_s)

    def forget(self, sequence: Sequence) -> None:
        """Forget what was particular to a sequence."""
        self._typical.pop(sequence.id, None)

    def _record(self, samples: bool) -> DraftRecord:
        return self._records.setdefault(samples, DraftRecord())

    def _typical_of(self, asker: Asker) -> TypicalTree:
        typical = self._typical.get(asker.sequence.id)
        if typical is None:
            typical = TypicalTree(FORGETTING_OF_SEQUENCE, self._record(asker.samples).typical)
            self._typical[asker.sequence.id] = typical
        return typical

    def _look_out(self, askers: SequenceABC[Asker], fixed_rows: int, max_rows: int) -> _Outlook:
        classes = frozenset(asker.samples for asker in askers)
        cost = self._costs.of(len(askers))
        situation = (len(askers), fixed_rows, max_rows, classes, cost.is_known)
        outlook = self._outlook
        if outlook.situation != situation or outlook.age >= REFRESH_ROUNDS:
            records = [self._record(samples) for samples in classes]
            hopes = [
                max(best) for best in zip(*(record.calibrator.best_conditionals() for record in records), strict=True)
            ]
            most_rows = min(max_rows, fixed_rows + len(askers) * self._config.max_nodes)
            base_s, per_depth_s = cost.line
            sizes = (hopes, len(askers), fixed_rows, self._cost, most_rows, base_s)
            least = least_useful_probability(fixed_rows, self._cost, most_rows)
            most_depth = self._config.max_depth if cost.is_known else min(FIRST_DEPTH, self._config.max_depth)
            outlook = self._outlook = _Outlook(
                situation=situation,
                # a tree has many nodes of one depth, which are paid for by rows only
                max_nodes=max_useful_nodes(*sizes),
                max_depth=min(max_useful_nodes(*sizes, per_depth_s), most_depth),
                min_path_probability={
                    samples: self._record(samples).calibrator.least_raw(least) for samples in classes
                },
            )
        outlook.age += 1
        return outlook

    def _limits(self, asker: Asker, least_gain: float) -> Limits:
        """How far to go for one sequence.

        Args:
            asker: whose.
            least_gain: tokens that the children of a node have to bring, 0 if they cost nothing.
        """
        record = self._record(asker.samples)
        least_parent = min(least_gain / record.continuation, 1.0)
        return Limits(
            self._outlook.max_nodes,
            min(self._outlook.max_depth, asker.max_depth),
            self._outlook.min_path_probability[asker.samples],
            record.calibrator.least_raw(least_parent) if least_gain else 0.0,
        )

    def _weigh(self, askers: SequenceABC[Asker], fixed_rows: int, max_rows: int) -> Plan:
        """Ask for those whose hoped gain is above their share of the cost, if that raises the rate of the pass."""
        cost = self._costs.of(len(askers))
        token_s = self._cost.cost(fixed_rows) / fixed_rows
        chosen: list[Asker] = []
        hoped: list[float] = []
        outlay_s = cost.usual
        for asker in askers:
            found = _descending(asker.tree)
            # the two guess the same tokens, so their probabilities do not add up
            hope = self._hope(asker, token_s)
            union = [max(pair) for pair in zip_longest(found, hope, fillvalue=0.0)] if found else hope
            hoped_tokens = min(sum(union), asker.max_depth)
            reading_s = self._reading_s(asker, hoped_tokens)
            if (hoped_tokens - sum(found)) * token_s > cost.usual / len(askers) + reading_s:
                chosen.append(asker)
                outlay_s += reading_s
                hoped += union
            else:
                hoped += found
        rate, num_nodes = self._rate(hoped, fixed_rows, max_rows, outlay_s) if chosen else (0.0, 0)
        at_hand = [probability for asker in askers for probability in asker.tree.path_probabilities]
        if not chosen or rate <= self._rate(at_hand, fixed_rows, max_rows, 0.0)[0]:
            chosen, rate = self._probed(askers, self._costs.of(1).usual, fixed_rows), 1.0 / token_s
            if not chosen:
                return []
        least = self._least_parent_s(len(chosen), fixed_rows, num_nodes) * rate
        return [(asker, self._limits(asker, least)) for asker in chosen]

    def _hope(self, asker: Asker, token_s: float) -> SequenceABC[float]:
        """Path probabilities of the tree that the drafter may give: as its trees were, or better if that is not known.

        Args:
            asker: for whom.
            token_s: seconds that a kept guess saves.
        """
        typical = self._typical_of(asker)
        if not typical.on_trial:
            return typical.expected
        if self._record(asker.samples).typical.on_trial:
            return typical.hoped
        trial_s = FAIR_TRIAL_OF_SEQUENCE * self._costs.of(1).usual + self._costs.reading_s(asker.backlog)
        is_affordable = trial_s <= TRIAL_SHARE * asker.sequence.stop_rules.num_left * token_s
        return typical.hoped if is_affordable else typical.expected

    def _probed(self, askers: SequenceABC[Asker], draft_s: float, fixed_rows: int) -> list[Asker]:
        """Whom to ask though it does not pay: the one who costs least, or nobody.

        Args:
            askers: at least one.
            draft_s: seconds that drafting for one takes, once the text is read.
            fixed_rows: rows that run anyway.
        """
        asker = _cheapest(askers)
        outlay_s = draft_s + self._costs.reading_s(asker.backlog)
        return [asker] if self._probe.allows(outlay_s / self._cost.cost(fixed_rows)) else []

    def _rate(self, probabilities: list[float], fixed_rows: int, max_rows: int, outlay_s: float) -> tuple[float, int]:
        return best_rate(sorted(probabilities, reverse=True), fixed_rows, self._cost, max_rows, outlay_s)

    def _least_parent_s(self, num_askers: int, fixed_rows: int, num_nodes: int) -> float:
        """Seconds that a further depth takes for each sequence: its share of the drafter's pass, and a row."""
        _, per_depth_s = self._costs.of(num_askers).line
        num_rows = max(num_nodes, num_askers)
        row_s = (self._cost.cost(fixed_rows + num_rows) - self._cost.cost(fixed_rows)) / num_rows
        return per_depth_s / num_askers + row_s

    def _reading_s(self, asker: Asker, hoped_tokens: float) -> float:
        """A round's share of reading what was missed, if a round keeps so many guesses."""
        rounds_left = asker.sequence.stop_rules.num_left / (1.0 + hoped_tokens)
        return self._costs.reading_s(asker.backlog) / min(READING_ROUNDS, max(rounds_left, 1.0))


def _cheapest(askers: SequenceABC[Asker]) -> Asker:
    """The one with the least to be read."""
    return min(askers, key=lambda asker: asker.backlog)


def _descending(tree: Tree) -> list[float]:
    return sorted(tree.path_probabilities, reverse=True)
