"""Drafters that try to do harm, or know too much: no output may change for any of them.

Each is a `headstart.decoding.drafter.Drafter`. Their states are the tokens they were told.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from headstart.decoding.drafter import DraftRequest
from headstart.records import SamplingParams, Tree


class TellingDrafter:
    """Base: remembers the tokens of each sequence, and asks `guess` for a tree."""

    name = "telling"

    def __init__(self) -> None:
        """Know of no sequence yet."""
        self.num_open = 0

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> list[int]:
        """Begin a sequence; its state is the list of its tokens."""
        self.num_open += 1
        return list(prompt)

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Append tokens that became final."""
        _tokens(state).extend(token_ids)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """One guess a request."""
        assert all(request.max_nodes >= 1 and request.max_depth >= 1 for request in requests)
        return [self.guess(_tokens(request.state), request.max_nodes, request.max_depth) for request in requests]

    def close(self, state: object) -> None:
        """Forget a sequence."""
        self.num_open -= 1

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """A tree of what follows `tokens`."""
        raise NotImplementedError


class OracleDrafter(TellingDrafter):
    """Always right, if `continuations` holds what plain decoding writes after each prompt."""

    name = "oracle"

    def __init__(self, continuations: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        """Learn the plain continuation (token ids) of each prompt."""
        super().__init__()
        self._texts = [(*prompt, *written) for prompt, written in continuations.items()]

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """The true continuation as a chain."""
        known = tuple(tokens)
        for text in self._texts:
            if text[: len(known)] == known:
                return _sure_chain(text[len(known) : len(known) + min(max_nodes, max_depth)])
        return Tree()


class WrongDrafter(OracleDrafter):
    """Never right: the true continuation, each token replaced by its successor modulo the vocabulary."""

    name = "wrong"

    def __init__(self, continuations: Mapping[tuple[int, ...], Sequence[int]], vocab_size: int) -> None:
        """Learn what is true, to avoid it."""
        super().__init__(continuations)
        self._vocab_size = vocab_size

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """A chain of which no token is right."""
        truth = super().guess(tokens, max_nodes, max_depth)
        return _sure_chain([(token + 1) % self._vocab_size for token in truth.tokens])


class BranchingDrafter(OracleDrafter):
    """Hides the true path among wrong branches, so that kept rows do not lie in place."""

    name = "branching"

    def __init__(self, continuations: Mapping[tuple[int, ...], Sequence[int]], vocab_size: int) -> None:
        """Learn the true path."""
        super().__init__(continuations)
        self._vocab_size = vocab_size

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """Two children at each true node, the wrong one first; every third level has no true one."""
        truth = super().guess(tokens, max_nodes, max_depth)
        nodes: list[tuple[int, int]] = []
        parent = -1
        for depth, token in enumerate(truth.tokens):
            nodes.append(((token + 1) % self._vocab_size, parent))
            if (len(tokens) + depth) % 3 == 2:
                break
            nodes.append((token, parent))
            parent = len(nodes) - 1
        nodes = nodes[:max_nodes]
        return Tree(tuple(token for token, _ in nodes), tuple(parent for _, parent in nodes), (0.9,) * len(nodes))


class RandomTreeDrafter(TellingDrafter):
    """Trees of random shape and tokens, some of them right by chance in a small vocabulary."""

    name = "random-tree"

    def __init__(self, vocab_size: int, seed: int) -> None:
        """Draw from a generator of its own."""
        super().__init__()
        self._vocab_size = vocab_size
        self._random = random.Random(seed)

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """A tree with up to `max_nodes` nodes; depth and duplicates are not minded."""
        count = self._random.randint(0, max_nodes)
        return Tree(
            tuple(self._random.randrange(self._vocab_size) for _ in range(count)),
            tuple(self._random.randint(-1, node - 1) for node in range(count)),
            tuple(self._random.random() for _ in range(count)),
        )


class BrokenTreeDrafter(TellingDrafter):
    """Gives the same malformed tree every time, whatever it was asked."""

    name = "broken-tree"

    def __init__(self, tree: Tree) -> None:
        """Take the tree to give."""
        super().__init__()
        self._tree = tree

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """That tree."""
        return self._tree


BROKEN_TREES: Mapping[str, Callable[[int], Tree]] = {
    "out-of-vocabulary": lambda vocab_size: Tree((vocab_size, -1, 2**40, 1), (-1, 0, -1, -1), (0.9, 0.8, 0.7, 0.6)),
    "nan": lambda vocab_size: Tree((1, 2), (-1, 0), (float("nan"), float("nan"))),
    "increasing": lambda vocab_size: Tree((1, 2, 3), (-1, 0, 1), (0.1, 0.9, 7.0)),
    "parents-behind": lambda vocab_size: Tree((1, 2, 3), (2, 1, -7), (0.9, 0.9, 0.9)),
    "siblings-alike": lambda vocab_size: Tree((1, 1, 1, 1), (-1, -1, 0, 1), (0.9, 0.9, 0.9, 0.9)),
    "ragged": lambda vocab_size: Tree((1, 2, 3), (-1,), (0.9, 0.9)),
    "too-many": lambda vocab_size: Tree(
        tuple(node % vocab_size for node in range(2000)), (-1, *range(1999)), (1.0,) * 2000
    ),
}
"""Malformed trees by name, each made for a vocabulary size."""


class RaisingDrafter(TellingDrafter):
    """Raises in one of its methods, from the n-th call of it on."""

    name = "raising"

    def __init__(self, method: str, call: int = 1) -> None:
        """Choose the method, "open", "extend", "propose" or "close", and the first bad call, from 1."""
        super().__init__()
        self._method = method
        self._calls_left = call

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> list[int]:
        """Begin a sequence, or raise."""
        self._tick("open")
        return super().open(prompt, params, seed)

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Append tokens, or raise."""
        self._tick("extend")
        super().extend(state, token_ids)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """Guess the last token again, or raise."""
        self._tick("propose")
        return super().propose(requests)

    def close(self, state: object) -> None:
        """Forget, or raise."""
        self._tick("close")
        super().close(state)

    def guess(self, tokens: Sequence[int], max_nodes: int, max_depth: int) -> Tree:
        """The last token again."""
        return _sure_chain([tokens[-1]])

    def _tick(self, method: str) -> None:
        if method == self._method:
            self._calls_left -= 1
            if self._calls_left <= 0:
                raise RuntimeError(f"a fault in {method}, as ordered")


def _tokens(state: object) -> list[int]:
    assert isinstance(state, list)
    return state


def _sure_chain(tokens: Sequence[int]) -> Tree:
    return Tree(tuple(tokens), tuple(range(-1, len(tokens) - 1)), (1.0,) * len(tokens))
