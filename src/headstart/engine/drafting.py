"""Asking drafters, one after the other, and deciding which of their guesses get rows.

Cheap drafters come first, so that a dear one is only asked if they leave it
something to gain. All guesses for a sequence are joined in one tree, and rows
go to the likeliest of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as SequenceABC

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import Drafter
from headstart.decoding.policy import allocate
from headstart.decoding.trees import origins, prune
from headstart.engine.draft_config import DraftConfig
from headstart.engine.draft_source import DraftSource
from headstart.engine.draft_worth import Asker
from headstart.engine.scheduler import Round
from headstart.engine.sequence import Sequence
from headstart.records import Tree

# Of passes without drafts there are many, all alike: one of so many is learnt from.
PLAIN_PASSES = 4


def as_drafters(drafter: Drafter | SequenceABC[Drafter] | None) -> tuple[Drafter, ...]:
    """None, one or several drafters as a tuple."""
    if drafter is None:
        return ()
    return tuple(drafter) if isinstance(drafter, SequenceABC) else (drafter,)


class Drafting:
    """The drafters of an engine.

    Attributes:
        name: of all of them, joined by "+".
        seconds: that drafting took, over all.
    """

    def __init__(
        self,
        drafters: SequenceABC[Drafter],
        config: DraftConfig,
        vocab_size: int,
        cost: CostCurve | None,
        *,
        give_whole_trees: bool = False,
    ) -> None:
        """Begin without sequences.

        Args:
            drafters: who proposes, cheap ones first; none for plain decoding.
            config: how much.
            vocab_size: ids that a guess may be.
            cost: of a trunk pass; needed for the policy "measured".
            give_whole_trees: whether all nodes that were asked for get rows, because the
                verification is only exact if none are selected by what they are.
        """
        self.name = "+".join(drafter.name for drafter in drafters) or "none"
        self.seconds = 0.0
        self._config = config
        self._cost = cost
        self._give_whole_trees = give_whole_trees or config.policy == "always"
        self._sources = [
            DraftSource(drafter, config, vocab_size, cost, whole_trees=self._give_whole_trees) for drafter in drafters
        ]
        self._fixed_rows = 0  # of this pass: those that run anyway
        self._num_passes = 0

    @property
    def num_faults(self) -> int:
        """Times that drafters raised."""
        return sum(source.num_faults for source in self._sources)

    def open(self, sequence: Sequence) -> None:
        """Begin to draft for a new sequence."""
        for source in self._sources:
            source.open(sequence)

    def propose(self, rounds: SequenceABC[Round], max_rows: int) -> list[tuple[Round, Tree]]:
        """The nodes that are to get rows, for the rounds that get any.

        Args:
            rounds: all rounds of the pass.
            max_rows: rows of the pass at most, those of `rounds` included.
        """
        started = time.perf_counter()
        self._fixed_rows = sum(round_.num_tokens for round_ in rounds)
        # a guess deeper than that could not be written any more: the trunk's own token comes on top
        askers = [
            Asker(round_, depth_left)
            for round_ in rounds
            if round_.reaches_root and (depth_left := round_.sequence.stop_rules.num_left - 1) > 0
        ]
        for source in self._sources:
            source.begin_pass()
            if askers:
                source.ask(askers, self._fixed_rows, max_rows)
        guessed = [asker for asker in askers if asker.tree.tokens]
        trees = self._select([asker.tree for asker in guessed], max_rows) if guessed else []
        self.seconds += time.perf_counter() - started
        return [(asker.round, tree) for asker, tree in zip(guessed, trees, strict=True) if tree.tokens]

    def _select(self, trees: list[Tree], max_rows: int) -> list[Tree]:
        if self._give_whole_trees:
            most = min(self._config.max_nodes, (max_rows - self._fixed_rows) // len(trees))
            return [prune(tree, most) for tree in trees]  # one drafter alone keeps to that by itself
        assert self._cost is not None
        # each drafter keeps to the bound, all of them together need not
        trees = [prune(tree, self._config.max_nodes) for tree in trees]
        return allocate(trees, self._fixed_rows, self._cost, max_rows)

    def tell(self, round_: Round, kept_nodes: SequenceABC[int], token_ids: SequenceABC[int]) -> None:
        """Tell the drafters what a round wrote, and count whose guesses were kept.

        Args:
            round_: with the nodes that had rows.
            kept_nodes: those that became final.
            token_ids: what was written.
        """
        sequence = round_.sequence
        self._credit(round_, kept_nodes)
        for source in self._sources:
            source.tell(sequence, token_ids)

    def _credit(self, round_: Round, kept_nodes: SequenceABC[int]) -> None:
        """A guess is to the credit of the first drafter that made it; the others added nothing."""
        sequence, tree = round_.sequence, round_.tree
        if not tree.tokens:
            return
        proposals = [source.proposed(sequence) for source in self._sources]
        whose = origins(tree, proposals)
        kept = {*kept_nodes}
        for index, source in enumerate(self._sources):
            own = [node for node, origin in enumerate(whose) if origin == index]
            num_kept = sum(node in kept for node in own)
            source.credit(len(own), num_kept)
            sequence.statistics.credit(source.name, len(own), num_kept)

    def observe_pass(self, num_rows: int, seconds: float) -> None:
        """Learn from a pass, all of whose rows were wanted.

        Args:
            num_rows: its rows.
            seconds: its time, and that of the engine's work around it.
        """
        if self._cost is None or self._config.policy == "always":
            return
        num_drafted = num_rows - self._fixed_rows
        # by the smoothed curve, for a slow moment is no fault of the drafts'
        pass_s = self._cost.cost(self._fixed_rows)
        row_s = (self._cost.cost(num_rows) - pass_s) / num_drafted if num_drafted else 0.0
        for source in self._sources:
            source.settle(pass_s / self._fixed_rows, row_s, pass_s)
        self._num_passes += 1
        if num_drafted or self._num_passes % PLAIN_PASSES == 0:
            self._cost.observe(num_rows, seconds)

    def close(self, sequence: Sequence) -> None:
        """Forget a sequence."""
        for source in self._sources:
            source.close(sequence)
