"""One drafter's service to an engine's sequences.

The drafter is never trusted: its trees are sanitised, and if it raises, the
sequence concerned goes on without it. Nothing here can change a token.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceABC
from contextlib import suppress

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import Drafter, DraftRequest, TrunkSlots
from headstart.decoding.trees import as_alternatives, merge, sanitise
from headstart.engine.draft_config import DraftConfig
from headstart.engine.draft_worth import Asker, DraftWorth, Limits, Plan
from headstart.engine.sequence import Sequence
from headstart.records import EMPTY_TREE, Tree

logger = logging.getLogger("headstart")


class DraftSource:
    """A drafter, its states, and what its guesses are worth.

    Attributes:
        name: of the drafter.
        num_faults: times it raised.
        seconds: that asking it took, over all.
    """

    def __init__(
        self, drafter: Drafter, config: DraftConfig, vocab_size: int, cost: CostCurve | None, *, whole_trees: bool
    ) -> None:
        """Begin without sequences.

        Args:
            drafter: who proposes.
            config: how much.
            vocab_size: ids that a guess may be.
            cost: of a trunk pass; needed for the policy "measured".
            whole_trees: whether its trees are to be left as they are, probabilities included.
        """
        self.name = drafter.name
        self.num_faults = 0
        self.seconds = 0.0
        self._drafter = drafter
        self._config = config
        self._vocab_size = vocab_size
        self._worth = None if cost is None or config.policy == "always" else DraftWorth(config, cost)
        self._whole_trees = whole_trees
        self._backlog: Callable[[object, TrunkSlots], int] | None = getattr(drafter, "backlog", None)
        self._states: dict[int, object] = {}  # by sequence
        self._proposed: dict[int, Tree] = {}  # what each was guessed, with rows or without
        # of this pass
        self._was_weighed = False
        self._num_rows = self._num_kept = 0

    def open(self, sequence: Sequence) -> None:
        """Begin to draft for a new sequence."""
        try:
            state = self._drafter.open(sequence.tokens, sequence.params, sequence.seed)
        except Exception as error:
            self._give_up(sequence, error)
            return
        if state is not None:
            self._states[sequence.id] = state

    def begin_pass(self) -> None:
        """Forget what belongs to the pass before."""
        self._was_weighed = False
        self._num_rows = self._num_kept = 0

    def ask(self, askers: SequenceABC[Asker], fixed_rows: int, max_rows: int) -> None:
        """Add guesses to the askers' trees, if that may pay.

        Args:
            askers: sequences that could use some.
            fixed_rows: rows that run anyway.
            max_rows: rows of the pass at most.
        """
        served = [asker for asker in askers if asker.sequence.id in self._states]
        if not served or (self._worth is not None and self._worth.rests()):
            return
        self._was_weighed = True
        started = time.perf_counter()
        for asker in served:
            asker.backlog = self._backlog_of(asker.sequence)
        plan = self._plan(served, fixed_rows, max_rows)
        if not plan:
            if self._worth is not None:
                self._worth.observe_weighing(time.perf_counter() - started)
            return
        trees = self._propose(plan)
        for (asker, _), tree in zip(plan, trees, strict=True):
            if not tree.tokens:
                continue
            self._proposed[asker.sequence.id] = tree
            guesses = tree if self._worth is None else self._worth.calibrate(asker, tree)
            guesses = tree if self._whole_trees else guesses
            asker.tree = as_alternatives(merge([asker.tree, guesses])) if asker.tree.tokens else guesses
        spent = time.perf_counter() - started
        self.seconds += spent
        if self._worth is not None:
            self._worth.observe_asking([asker for asker, _ in plan], trees, spent)

    def proposed(self, sequence: Sequence) -> Tree:
        """What it guessed for a sequence in this pass."""
        return self._proposed.get(sequence.id, EMPTY_TREE)

    def credit(self, num_rows: int, num_kept: int) -> None:
        """Note that so many rows of this pass were for its guesses, and how many were kept."""
        self._num_rows += num_rows
        self._num_kept += num_kept

    def tell(self, sequence: Sequence, token_ids: SequenceABC[int]) -> None:
        """Tell the drafter what was written, and learn how its guesses fared."""
        tree = self._proposed.pop(sequence.id, EMPTY_TREE)
        if self._worth is not None and tree.tokens:
            self._worth.observe(sequence, tree, token_ids)
        state = self._states.get(sequence.id)
        if state is None:
            return
        try:
            self._drafter.extend(state, token_ids)
        except Exception as error:
            self._give_up(sequence, error)

    def settle(self, token_s: float, row_s: float, pass_s: float) -> None:
        """Hold what this pass's guesses came to against what they cost.

        Args:
            token_s: seconds that a kept guess saved.
            row_s: seconds that a row of a guess took.
            pass_s: seconds of a pass without guesses.
        """
        if self._worth is not None and self._was_weighed:
            self._worth.enter(self._num_kept * token_s, self._num_rows * row_s, pass_s)

    def close(self, sequence: Sequence) -> None:
        """Forget a sequence."""
        self._proposed.pop(sequence.id, None)
        if self._worth is not None:
            self._worth.forget(sequence)
        state = self._states.pop(sequence.id, None)
        if state is None:
            return
        try:
            self._drafter.close(state)
        except Exception as error:
            self._give_up(sequence, error)

    def _plan(self, served: SequenceABC[Asker], fixed_rows: int, max_rows: int) -> Plan:
        if self._worth is not None:
            plan = self._worth.plan(served, fixed_rows, max_rows)
        else:
            plan = [
                (asker, Limits(self._config.max_nodes, min(self._config.max_depth, asker.max_depth)))
                for asker in served
            ]
        if not self._whole_trees:
            return plan
        # all nodes will get rows, so no more may be asked for, and none left out for what it is
        most = (max_rows - fixed_rows) // len(served)
        return [(asker, Limits(min(limits.max_nodes, most), limits.max_depth)) for asker, limits in plan if most > 0]

    def _propose(self, plan: Plan) -> list[Tree]:
        """A valid tree for each; after a fault each is asked alone, to find whose it is."""
        requests = [
            DraftRequest(
                self._states[asker.sequence.id],
                limits.max_nodes,
                limits.max_depth,
                limits.min_path_probability,
                limits.min_parent_probability,
                _trunk_slots(asker.sequence),
                self._config.min_confidence,
            )
            for asker, limits in plan
        ]
        try:
            trees = self._drafter.propose(requests)
            return [
                sanitise(tree, self._vocab_size, limits.max_nodes, limits.max_depth)
                for tree, (_, limits) in zip(trees, plan, strict=True)
            ]
        except Exception as error:
            if len(plan) > 1:
                return [self._propose([part])[0] for part in plan]
            self._give_up(plan[0][0].sequence, error)
            return [EMPTY_TREE]

    def _backlog_of(self, sequence: Sequence) -> int:
        if self._backlog is None:
            return 0
        try:
            return self._backlog(self._states[sequence.id], _trunk_slots(sequence))
        except Exception:
            return 0  # the fault will show when it is asked

    def _give_up(self, sequence: Sequence, error: Exception) -> None:
        """Do without this drafter for a sequence from here on."""
        self.num_faults += 1
        log = logger.warning if self.num_faults == 1 else logger.debug
        log("Drafter %s failed (%r); a sequence goes on without it, its output unchanged.", self.name, error)
        state = self._states.pop(sequence.id, None)
        if state is not None:
            with suppress(Exception):
                self._drafter.close(state)


def _trunk_slots(sequence: Sequence) -> TrunkSlots:
    pages = sequence.pages
    assert pages is not None, "a sequence in a pass has pages"
    return TrunkSlots(pages.array, pages.stamps, pages.committed)
