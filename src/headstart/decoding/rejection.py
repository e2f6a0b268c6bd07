"""Verification by acceptance tests: exact in distribution, not token by token.

`headstart.decoding.verify` asks whether a node is what the trunk chose. The
rules here ask instead whether a node may stand for a draw from the trunk's
distribution. They accept somewhat more than uncoupled drafts would get there,
but their output depends on the drafts: the same seed gives another text of the
same distribution. They are here to be compared.

All rules have one signature, `RejectionRule`. What each demands of the drafts
is part of its exactness and stands in its docstring: a rule that divides by the
draft distribution needs nodes that were truly drawn from it, and which drawn
nodes are tested must not depend on what they turned out to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.decoding import trees
from headstart.errors import ConfigError
from headstart.records import Tree, Verdict

Floats = NDArray[np.float64]


class RandomSource(Protocol):
    """The two random acts of a rule. A test may enumerate their outcomes instead."""

    def decide(self, probability: float) -> bool:
        """True with this probability; always at 1 or above, never at 0."""

    def draw(self, weights: Floats) -> int:
        """An index with chance in proportion to its weight; `weights` [V] need not sum to 1."""


class GeneratorSource:
    """Random acts from a numpy generator.

    Args:
        generator: asked for one uniform number for each act.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        """Draw from `generator` from its present state on."""
        self._generator = generator

    def decide(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self._generator.random() < probability)

    def draw(self, weights: Floats) -> int:
        """An index with chance in proportion to its weight."""
        cumulative = np.cumsum(weights)
        # "right" passes over zero weights, also at a uniform number of 0; a product rounded up to
        # the sum would point past the end
        index = np.searchsorted(cumulative, self._generator.random() * cumulative[-1], side="right")
        return int(min(index, np.flatnonzero(weights)[-1]))


RejectionRule = Callable[[Tree, Floats, Floats, RandomSource], Verdict]
"""A rule: `(tree, target_probs, draft_probs, source) -> Verdict`.

Arguments:
    tree: the drafted nodes, all of which were scored.
    target_probs: float64 [len(tree) + 1, V], the law's distribution after the
        root (row 0) and after node i (row i + 1).
    draft_probs: the same shape: the distribution from which the children of the
        root and of node i were drawn. A rule that does not use it takes any.
    source: of randomness.
"""


def chain_residual(tree: Tree, target_probs: Floats, draft_probs: Floats, source: RandomSource) -> Verdict:
    """Test a chain token by token; replace the first rejected one from the residual.

    A token is accepted with probability min(1, target / draft), else drawn anew
    from the positive part of target - draft.

    Each node must be drawn from its row of `draft_probs`. One that has no
    probability there was not; it and what follows are left untested.

    Raises:
        ConfigError: the tree has branches.

    Source: Leviathan et al., "Fast Inference from Transformers via Speculative
    Decoding", arXiv 2211.17192, algorithm 1.
    """
    length = _drawn_length(tree, draft_probs)
    for node in range(length):
        token, target, draft = tree.tokens[node], target_probs[node], draft_probs[node]
        if not source.decide(target[token] / draft[token]):
            return Verdict(tuple(range(node)), source.draw(_residual(target, draft)))
    return Verdict(tuple(range(length)), source.draw(target_probs[length]))


def block(tree: Tree, target_probs: Floats, draft_probs: Floats, source: RandomSource) -> Verdict:
    """Test a chain as a whole; never keeps fewer tokens in expectation than `chain_residual`.

    With the running ratio r_i = min(1, r_{i-1} * target_i / draft_i), the block
    of the first i tokens is accepted with a probability h_i made so that target
    mass not spent on longer blocks is spent here; the longest accepted block is
    kept, and the next token drawn from the positive part of r_i * target - draft.

    Demands of the nodes and errors are those of `chain_residual`; the number of
    nodes, too, must be fixed before they are drawn.

    Source: Sun et al., "Block Verification Accelerates Speculative Decoding",
    arXiv 2403.10444, algorithm 2.
    """
    length = _drawn_length(tree, draft_probs)
    ratios = [1.0]
    for node in range(length):
        token = tree.tokens[node]
        ratios.append(min(1.0, ratios[-1] * float(target_probs[node, token] / draft_probs[node, token])))
    # the paper tests every block and keeps the longest that passed: the first from the end
    if source.decide(ratios[length]):
        return Verdict(tuple(range(length)), source.draw(target_probs[length]))
    for num_kept in range(length - 1, 0, -1):
        scaled_target, draft = ratios[num_kept] * target_probs[num_kept], draft_probs[num_kept]
        unspent = float(np.maximum(scaled_target - draft, 0.0).sum())
        denominator = unspent + 1.0 - ratios[num_kept]
        # 0 / 0: target and draft are one here, every longer block has passed but for rounding
        if source.decide(unspent / denominator if denominator > 0.0 else 1.0):
            return Verdict(tuple(range(num_kept)), source.draw(_residual(scaled_target, draft)))
    return Verdict((), source.draw(_residual(target_probs[0], draft_probs[0])))


def point_mass(tree: Tree, target_probs: Floats, draft_probs: Floats, source: RandomSource) -> Verdict:
    """Test a tree whose nodes were not drawn but picked, such as the top k.

    Children are tried in turn: each is accepted with what probability the
    target has left for it, else struck from the target. This is exact for any
    nodes fixed before the source is asked, and accepts as often as drawing from
    the target and looking for the token among the children.

    Source: Li et al., "EAGLE-2", arXiv 2406.16858, in the released code's
    tree verification, where the draft probability of a picked token counts as 1.
    """
    children = trees.children(tree)
    kept_nodes: list[int] = []
    row = 0
    while True:
        remaining = target_probs[row]
        for node in children[row]:
            token = tree.tokens[node]
            if source.decide(remaining[token] / remaining.sum()):
                kept_nodes.append(node)
                row = node + 1
                break
            remaining = _without(remaining, token)
        else:
            return Verdict(tuple(kept_nodes), source.draw(remaining))


def without_replacement(tree: Tree, target_probs: Floats, draft_probs: Floats, source: RandomSource) -> Verdict:
    """Test a tree whose siblings were drawn one after another without replacement.

    Children are tried in the order of drawing by the test of `chain_residual`.
    After a rejection the target becomes the residual, and the draft
    distribution loses the rejected token, as it did when the next was drawn.

    All children that were drawn must be there, in order; a node without draft
    probability was not drawn and is passed over.

    Source: Jeon et al., "Recursive Speculative Decoding", arXiv 2402.14160,
    recursive rejection sampling.
    """
    children = trees.children(tree)
    kept_nodes: list[int] = []
    row = 0
    while True:
        remaining_target = target_probs[row]
        remaining_draft = draft_probs[row]
        for node in children[row]:
            token = tree.tokens[node]
            if remaining_draft[token] <= 0.0:
                continue
            target = remaining_target / remaining_target.sum()
            draft = remaining_draft / remaining_draft.sum()
            if source.decide(target[token] / draft[token]):
                kept_nodes.append(node)
                row = node + 1
                break
            remaining_target = _residual(target, draft)
            remaining_draft = _struck(remaining_draft, token)
        else:
            return Verdict(tuple(kept_nodes), source.draw(remaining_target))


REJECTION_RULES: Mapping[str, RejectionRule] = MappingProxyType(
    {
        "chain": chain_residual,
        "block": block,
        "point-mass": point_mass,
        "without-replacement": without_replacement,
    }
)
"""The rules by the names that users give."""


def _drawn_length(tree: Tree, draft_probs: Floats) -> int:
    """How many nodes of a chain can have been drawn from the draft distributions."""
    if not trees.is_chain(tree):
        raise ConfigError(
            "This rejection rule tests one chain of guesses, but the drafter proposed a tree with branches. "
            "Use the rule 'point-mass' or 'without-replacement', or a drafter that proposes chains."
        )
    for node, token in enumerate(tree.tokens):
        if draft_probs[node, token] <= 0.0:
            return node
    return len(tree)


def _residual(target: Floats, draft: Floats) -> Floats:
    """Weights of what the target has beyond the draft."""
    residual = np.maximum(target - draft, 0.0)
    # empty only if the two are one, and then a rejection is an accident of rounding
    return residual if residual.any() else target


def _struck(weights: Floats, token: int) -> Floats:
    left = weights.copy()
    left[token] = 0.0
    return left


def _without(target: Floats, token: int) -> Floats:
    """The target's weights when a token was refused."""
    left = _struck(target, token)
    # empty only if the token had all the weight, and then its refusal is an accident of rounding
    return left if left.any() else target
