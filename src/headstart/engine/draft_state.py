"""One sequence as a drafter with a cache of its own sees it: what is known, what is guessed, what has run.

    tokens   |-------------- known --------------|- guesses -|
    slots    |--- committed ---|-- run --|        nothing run      (catching up)
             |---------- committed ------------|-- run --|         (drafting)
             0                                root

The last guess of a chain has no row yet: it only gets one if a deeper guess is
wanted, or if it proves true. A row of a guess that proved true stays; nothing
that was run for a token of the text is run again, unless its pages were lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headstart.decoding.trees import prune, take
from headstart.engine.cache import PageAccounts, PageTable
from headstart.records import EMPTY_TREE, SamplingParams, Tree
from headstart.runtime.protocol import Chooser


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """What a drafter thinks of one position.

    Attributes:
        tokens: the guess that the chain goes on with, then other ones for the same place.
        raw: the drafter's own probability of each of them.
        probabilities: of each, that it is accepted if the guesses before it are.
        distribution: float64 [V], what the tokens were drawn from, if they were drawn.
    """

    tokens: tuple[int, ...]
    raw: tuple[float, ...]
    probabilities: tuple[float, ...]
    distribution: NDArray[np.float64] | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class DraftState:
    """What a drafter remembers of one sequence.

    Attributes:
        params: the law by which it guesses, in its own vocabulary.
        seed: of the sequence.
        chooser: that law with the counts of all known tokens.
        tokens: the known tokens, prompt and written; the last one is the root.
        guesses: what may follow them, a chain.
        pages: its cache pages, or `None` while it has none.
        num_before: tokens that were known before the last ones were told.
        num_known: slots that earlier texts had run when it began; an estimate of what it will find in the cache.
        num_run: slots, from the first, whose rows are those of known tokens and guesses.
        is_lost: a token came that the drafter's vocabulary does not have.
    """

    params: SamplingParams
    seed: int
    chooser: Chooser
    tokens: list[int]
    guesses: list[Guess] = field(default_factory=list)
    pages: PageTable | None = None
    num_before: int = 0
    num_known: int = 0
    num_run: int = 0
    is_lost: bool = False

    @property
    def path(self) -> tuple[int, ...]:
        """The chain of guesses."""
        return tuple(guess.tokens[0] for guess in self.guesses)

    @property
    def path_probability(self) -> float:
        """The probability that the whole chain is accepted."""
        reached = 1.0
        for guess in self.guesses:
            reached *= guess.probabilities[0]
        return reached

    @property
    def unrun(self) -> list[int]:
        """Tokens after the run ones, in slot order: known ones, then the end of the chain."""
        return [*self.tokens[self.num_run :], *self.path[max(0, self.num_run - len(self.tokens)) :]]

    def learn(self, token_ids: Sequence[int], accounts: PageAccounts, *, keep_guesses: bool) -> None:
        """Take tokens that became final; keep the rows that agree with them.

        Args:
            token_ids: the tokens, the next round's root included.
            accounts: of the cache.
            keep_guesses: whether guesses beyond them hold on if all of them were foreseen.
        """
        num_known, path = len(self.tokens), self.path
        num_right = 0
        while num_right < min(len(path), len(token_ids)) and path[num_right] == token_ids[num_right]:
            num_right += 1
        foreseen = keep_guesses and num_right == len(token_ids)
        self.guesses = self.guesses[num_right:] if foreseen else []
        self.num_before = num_known
        self.tokens += token_ids
        self.chooser.extend(token_ids)
        if not self.guesses:
            # the root is to run in any case, for its logits
            self.num_run = min(self.num_run, num_known + num_right, len(self.tokens) - 1)
            # not before: a commit gives back the pages beyond it, where rows of guesses may lie
            self.commit(accounts)

    def commit(self, accounts: PageAccounts) -> None:
        """Make the rows that have run final; there are no guesses."""
        if self.pages is not None:
            accounts.commit(self.pages, self.num_run - self.pages.committed, self.tokens)

    def whole_tree(self, *, raw: bool = False) -> Tree:
        """All guesses, with the drafter's own probabilities if they are to be `raw`."""
        return _build([(guess.tokens, guess.raw if raw else guess.probabilities) for guess in self.guesses])

    def tree(self, max_nodes: int, max_depth: int) -> Tree:
        """The likeliest guesses, with distributions if they were drawn.

        Args:
            max_nodes: nodes at most.
            max_depth: depth at most.
        """
        guesses = self.guesses[:max_depth]
        if not guesses:
            return EMPTY_TREE
        tree = _build([(guess.tokens, guess.probabilities) for guess in guesses])
        if guesses[0].distribution is None:
            return prune(tree, max_nodes)
        tree = take(tree, range(min(max_nodes, len(tree))))  # which are left must not depend on what was drawn
        distributions = np.zeros((len(tree) + 1, len(guesses[0].distribution)))
        row = 0
        for guess in guesses:
            if row - 1 not in tree.parents:
                break
            distributions[row] = guess.distribution
            row = tree.parents.index(row - 1) + 1  # of the first child, with which the chain goes on
        return Tree(tree.tokens, tree.parents, tree.path_probabilities, distributions)


def _build(levels: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Tree:
    """A chain with leaves beside it, from tokens and their conditional probabilities at depth 1, 2, ..."""
    tokens: list[int] = []
    parents: list[int] = []
    path_probabilities: list[float] = []
    parent, reached = -1, 1.0
    for level_tokens, probabilities in levels:
        first = len(tokens)
        tokens += level_tokens
        parents += [parent] * len(level_tokens)
        path_probabilities += [reached * probability for probability in probabilities]
        parent, reached = first, path_probabilities[first]
    return Tree(tuple(tokens), tuple(parents), tuple(path_probabilities))
