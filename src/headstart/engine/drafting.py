"""Asking a drafter, and deciding which of its guesses get rows.

The drafter is never trusted: its trees are sanitised, its probabilities
calibrated against what was written, and if it raises, the sequence concerned is
decoded plainly from there on. Nothing here can change a token.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence as SequenceABC
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, get_args

from headstart.decoding.calibration import Calibrator
from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import Drafter, DraftRequest
from headstart.decoding.policy import Ledger, ProbeSchedule, allocate, least_useful_probability, max_useful_nodes
from headstart.decoding.trees import depths, sanitise
from headstart.engine.draft_cost import DraftCost
from headstart.engine.scheduler import Round
from headstart.engine.sequence import Sequence
from headstart.errors import ConfigError
from headstart.records import EMPTY_TREE, Tree

logger = logging.getLogger("headstart")

Policy = Literal["measured", "always"]

# Rounds for which an estimate of what can pay at best is good: working it out may cost some percent of a pass.
REFRESH_ROUNDS = 32

# Of passes without drafts there are many, all alike: one of so many is learnt from.
PLAIN_PASSES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftConfig:
    """How much is drafted.

    Attributes:
        policy: "measured" gives rows where measured cost and acceptance say that
            it pays; "always" gives rows to all that is drafted, as far as they
            go, and is for experiments and tests.
        max_nodes: nodes at most for a sequence and round.
        max_depth: depth at most.

    Raises:
        ConfigError: a value is out of its range.
    """

    policy: Policy = "measured"
    max_nodes: int = 16
    max_depth: int = 16

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise ConfigError(f"policy = {self.policy!r}: it must be one of {', '.join(get_args(Policy))}.")
        for name in ("max_nodes", "max_depth"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} = {getattr(self, name)}: it must be at least 1. To draft nothing, give no drafter."
                )


@dataclass(slots=True)
class _Outlook:
    """What drafting can bring at best, for some rounds of the same situation."""

    num_askers: int = 0
    fixed_rows: int = 0  # rows that run anyway
    max_rows: int = 0
    useful_nodes: int = 0
    min_path_probability: float = 0.0  # by the drafter's own count
    age: int = 0  # rounds since it was worked out


class Drafting:
    """One drafter's service to an engine's sequences.

    Attributes:
        name: of the drafter.
        num_faults: times it raised.
        seconds: that it took, over all.
    """

    def __init__(
        self,
        drafter: Drafter | None,
        config: DraftConfig,
        vocab_size: int,
        cost: CostCurve | None,
        *,
        give_whole_trees: bool = False,
    ) -> None:
        """Begin without sequences.

        Args:
            drafter: who proposes; `None` for plain decoding.
            config: how much.
            vocab_size: ids that a guess may be.
            cost: of a trunk pass; needed for the policy "measured".
            give_whole_trees: whether all nodes that were asked for get rows, because the
                verification is only exact if none are selected by what they are.
        """
        self.num_faults = 0
        self.seconds = 0.0
        self.name = "none" if drafter is None else drafter.name
        self._drafter = drafter
        self._config = config
        self._vocab_size = vocab_size
        self._cost = cost
        self._calibrator = Calibrator()
        self._probe = ProbeSchedule()
        self._give_whole_trees = give_whole_trees or config.policy == "always"
        self._draft_cost = DraftCost()
        self._outlook = _Outlook()
        self._num_passes = 0
        self._ledger = Ledger()
        self._asking_s = 0.0  # seconds of asking in this pass
        self._proposed: dict[int, Tree] = {}  # what each sequence was guessed, with rows or without

    def open(self, sequence: Sequence) -> None:
        """Begin to draft for a new sequence."""
        if self._drafter is None:
            return
        try:
            sequence.drafter_state = self._drafter.open(sequence.tokens, sequence.params, sequence.seed)
        except Exception as error:
            self._give_up(sequence, error)

    def propose(self, rounds: SequenceABC[Round], max_rows: int) -> list[tuple[Round, Tree]]:
        """The nodes that are to get rows, for the rounds that get any.

        Args:
            rounds: all rounds of the pass.
            max_rows: rows of the pass at most, those of `rounds` included.
        """
        started = time.perf_counter()
        self._asking_s = 0.0
        askers = [r for r in rounds if r.sequence.drafter_state is not None and r.reaches_root and _depth_left(r) > 0]
        if not askers or self._ledger.rests():
            return []
        fixed_rows = sum(round_.num_tokens for round_ in rounds)
        num_nodes = self._nodes_to_ask(len(askers), fixed_rows, max_rows)
        if self._give_whole_trees:
            num_nodes = min(num_nodes, (max_rows - fixed_rows) // len(askers))
        if num_nodes <= 0:
            return []
        trees = self._ask(askers, num_nodes)
        for round_, tree in zip(askers, trees, strict=True):
            if tree.tokens:
                self._proposed[round_.sequence.id] = tree
        given = self._select(trees, fixed_rows, max_rows)
        spent = time.perf_counter() - started
        self.seconds += spent
        if depth := max(max(depths(tree), default=0) for tree in trees):
            # one that only read, as a model reads a prompt before its first guess, did not do what is asked about
            self._draft_cost.observe(depth, spent)
        self._asking_s = spent
        return [(round_, tree) for round_, tree in zip(askers, given, strict=True) if tree.tokens]

    def _select(self, trees: list[Tree], fixed_rows: int, max_rows: int) -> list[Tree]:
        if self._give_whole_trees:
            return trees
        assert self._cost is not None
        return allocate([self._calibrator.calibrate(tree) for tree in trees], fixed_rows, self._cost, max_rows)

    def tell(self, sequence: Sequence, token_ids: SequenceABC[int]) -> None:
        """Tell the drafter what was written, and learn how its guesses fared."""
        if sequence.drafter_state is None:
            return
        assert self._drafter is not None
        tree = self._proposed.pop(sequence.id, EMPTY_TREE)
        if tree.tokens:
            self._calibrator.observe(tree, token_ids)
        try:
            self._drafter.extend(sequence.drafter_state, token_ids)
        except Exception as error:
            self._give_up(sequence, error)

    def observe_pass(self, num_rows: int, num_kept: int, seconds: float) -> None:
        """Learn from a pass, all of whose rows were wanted.

        Args:
            num_rows: its rows.
            num_kept: nodes among them that were kept.
            seconds: its time, and that of the engine's work around it.
        """
        if self._cost is None or self._config.policy == "always":
            return
        if self._asking_s > 0.0:
            fixed_rows = self._outlook.fixed_rows
            plain_s = self._cost.cost(fixed_rows)
            # by the smoothed curve, for a slow moment is no fault of the draft's
            spent_s = self._asking_s + self._cost.cost(num_rows) - plain_s
            self._ledger.enter(num_kept * plain_s / fixed_rows, spent_s, plain_s)
        self._num_passes += 1
        has_drafts = num_rows > self._outlook.fixed_rows
        if has_drafts or self._num_passes % PLAIN_PASSES == 0:
            self._cost.observe(num_rows, seconds)

    def close(self, sequence: Sequence) -> None:
        """Forget a sequence."""
        self._proposed.pop(sequence.id, None)
        if sequence.drafter_state is None:
            return
        assert self._drafter is not None
        state, sequence.drafter_state = sequence.drafter_state, None
        try:
            self._drafter.close(state)
        except Exception as error:
            self._give_up(sequence, error)

    def _nodes_to_ask(self, num_askers: int, fixed_rows: int, max_rows: int) -> int:
        if self._config.policy == "always":
            return self._config.max_nodes
        assert self._cost is not None
        outlook = self._outlook
        known = (outlook.num_askers, outlook.fixed_rows, outlook.max_rows) == (num_askers, fixed_rows, max_rows)
        if not known or outlook.age >= REFRESH_ROUNDS:
            outlook = self._outlook = self._look_out(num_askers, fixed_rows, max_rows)
        outlook.age += 1
        return self._probe.nodes_to_ask(outlook.useful_nodes, self._draft_cost.cost(1) / self._cost.cost(fixed_rows))

    def _look_out(self, num_askers: int, fixed_rows: int, max_rows: int) -> _Outlook:
        assert self._cost is not None
        most_rows = min(max_rows, fixed_rows + num_askers * self._config.max_nodes)
        hopes = self._calibrator.best_conditionals()
        return _Outlook(
            num_askers=num_askers,
            fixed_rows=fixed_rows,
            max_rows=max_rows,
            useful_nodes=max_useful_nodes(hopes, num_askers, fixed_rows, self._cost, most_rows, *self._draft_cost.line),
            min_path_probability=self._calibrator.least_raw(
                least_useful_probability(fixed_rows, self._cost, most_rows)
            ),
        )

    def _ask(self, askers: SequenceABC[Round], num_nodes: int) -> list[Tree]:
        """A valid tree for each; after a fault each is asked alone, to find whose it is."""
        assert self._drafter is not None
        max_depths = [min(self._config.max_depth, _depth_left(round_)) for round_ in askers]
        least = 0.0 if self._give_whole_trees else self._outlook.min_path_probability
        requests = [
            DraftRequest(round_.sequence.drafter_state, num_nodes, max_depth, least)
            for round_, max_depth in zip(askers, max_depths, strict=True)
        ]
        try:
            trees = self._drafter.propose(requests)
            return [
                sanitise(tree, self._vocab_size, num_nodes, max_depth)
                for tree, max_depth in zip(trees, max_depths, strict=True)
            ]
        except Exception as error:
            if len(askers) > 1:
                return [self._ask((round_,), num_nodes)[0] for round_ in askers]
            self._give_up(askers[0].sequence, error)
            return [EMPTY_TREE]

    def _give_up(self, sequence: Sequence, error: Exception) -> None:
        """Decode a sequence plainly from here on."""
        self.num_faults += 1
        log = logger.warning if self.num_faults == 1 else logger.debug
        log("Drafter %s failed (%r); a sequence goes on without it, its output unchanged.", self.name, error)
        state, sequence.drafter_state = sequence.drafter_state, None
        if state is not None and self._drafter is not None:
            with suppress(Exception):
                self._drafter.close(state)


def _depth_left(round_: Round) -> int:
    """Depth beyond which a kept node could not be written any more: the trunk's own token comes on top."""
    return round_.sequence.stop_rules.num_left - 1
