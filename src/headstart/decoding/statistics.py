"""Acceptance, counted: one definition for each figure that is reported.

The words are those of the glossary: a *round* is one trunk pass that yielded
tokens of a sequence; depth 1 is the first guess after the root. The counts of
one sequence, of a batch and of an engine's whole life are the same record, and
`merge` adds them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self

from headstart.decoding.trees import depths
from headstart.records import Completion, Tree

_TOTALS = ("rounds", "tokens", "drafted", "accepted")
_BY_DEPTH = ("drafted_by_depth", "reached_by_depth", "accepted_by_depth")
_BY_DRAFTER = ("drafted_by_drafter", "accepted_by_drafter")


class AcceptanceStatistics:
    """Rounds, drafted and accepted nodes, in total and by depth.

    Attributes:
        rounds: trunk passes that yielded tokens.
        tokens: tokens that became final in them.
        drafted: nodes that were given rows.
        accepted: nodes that were kept.
        drafted_by_depth: rounds that gave a row to some node of depth 1, 2, ...
        reached_by_depth: of those, rounds in which all earlier depths were kept.
        accepted_by_depth: kept nodes at depth 1, 2, ...
        drafted_by_drafter: nodes that were given rows, by the name of who guessed them.
        accepted_by_drafter: kept nodes, likewise.
    """

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.rounds = 0
        self.tokens = 0
        self.drafted = 0
        self.accepted = 0
        self.drafted_by_depth: list[int] = []
        self.reached_by_depth: list[int] = []
        self.accepted_by_depth: list[int] = []
        self.drafted_by_drafter: Counter[str] = Counter()
        self.accepted_by_drafter: Counter[str] = Counter()

    @classmethod
    def of(cls, completion: Completion) -> Self:
        """The counts of one text."""
        data = {name: getattr(completion, name) for name in (*_TOTALS, *_BY_DEPTH, *_BY_DRAFTER) if name != "tokens"}
        return cls.from_json(data | {"tokens": len(completion.token_ids)})

    @classmethod
    def total(cls, parts: Iterable[AcceptanceStatistics]) -> Self:
        """The counts of all parts together."""
        total = cls()
        for part in parts:
            total.merge(part)
        return total

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From what `to_json` gave."""
        counts = cls()
        for name in _TOTALS:
            setattr(counts, name, data[name])
        for name in _BY_DEPTH:
            setattr(counts, name, list(data[name]))
        for name in _BY_DRAFTER:
            setattr(counts, name, Counter(data[name]))
        return counts

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return (
            {name: getattr(self, name) for name in _TOTALS}
            | {name: list(getattr(self, name)) for name in _BY_DEPTH}
            | {name: dict(getattr(self, name)) for name in _BY_DRAFTER}
        )

    def record(self, tree: Tree, num_kept: int, num_tokens: int) -> None:
        """Count one round.

        Args:
            tree: the nodes that were given rows.
            num_kept: how many of them were kept; they lie on one path, so this
                is also the depth that was kept.
            num_tokens: tokens that became final. Usually `num_kept + 1`; fewer
                when a stop rule cut the round short.
        """
        self.rounds += 1
        self.tokens += num_tokens
        if not tree.tokens:
            return
        self.drafted += len(tree.tokens)
        self.accepted += num_kept
        depth = max(depths(tree))
        self._grow(depth)
        for k in range(depth):
            self.drafted_by_depth[k] += 1
        # a guess at depth k is reached once k - 1 guesses were kept and the text goes on after them
        for k in range(min(depth, num_tokens)):
            self.reached_by_depth[k] += 1
        for k in range(num_kept):
            self.accepted_by_depth[k] += 1

    def credit(self, drafter: str, num_drafted: int, num_kept: int) -> None:
        """Count whose guesses the nodes of a round were.

        Args:
            drafter: who guessed; of several, the first that was asked.
            num_drafted: nodes of its that were given rows.
            num_kept: how many of these were kept.
        """
        self.drafted_by_drafter[drafter] += num_drafted
        self.accepted_by_drafter[drafter] += num_kept

    def merge(self, other: AcceptanceStatistics) -> None:
        """Add the counts of `other` to these."""
        self.rounds += other.rounds
        self.tokens += other.tokens
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.drafted_by_drafter.update(other.drafted_by_drafter)
        self.accepted_by_drafter.update(other.accepted_by_drafter)
        self._grow(len(other.drafted_by_depth))
        for name in _BY_DEPTH:
            mine = getattr(self, name)
            for k, amount in enumerate(getattr(other, name)):
                mine[k] += amount

    @property
    def drafted_rounds(self) -> int:
        """Rounds that gave a row to at least one node."""
        return self.drafted_by_depth[0] if self.drafted_by_depth else 0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens kept for each round, the trunk's own included; 0 before the first round."""
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted nodes; 0 if none was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def conditional_acceptance(self) -> tuple[float, ...]:
        """a_k: accepted at depth k over reached depth k; 0 where a depth was never reached."""
        return tuple(
            accepted / reached if reached else 0.0
            for accepted, reached in zip(self.accepted_by_depth, self.reached_by_depth, strict=True)
        )

    @property
    def survival(self) -> tuple[float, ...]:
        """s_k: the product of a_1 to a_k."""
        survival: list[float] = []
        product = 1.0
        for conditional in self.conditional_acceptance:
            product *= conditional
            survival.append(product)
        return tuple(survival)

    def _grow(self, depth: int) -> None:
        missing = depth - len(self.drafted_by_depth)
        if missing > 0:
            for name in _BY_DEPTH:
                getattr(self, name).extend([0] * missing)
