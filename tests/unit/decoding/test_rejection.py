"""The rejection rules, proved by enumeration.

Every outcome of every random act is followed, drafting included, so the
distribution of the output is known to rounding and must be the target's.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from headstart.decoding import rejection, trees
from headstart.decoding.rejection import REJECTION_RULES, GeneratorSource
from headstart.errors import ConfigError
from headstart.records import Tree, Verdict


class Enumeration:
    """A random source that is taken through all its outcomes, one run each."""

    def __init__(self) -> None:
        self._script: list[int] = []  # which of its possible outcomes each act has in this run
        self._acts: list[list[tuple[object, float]]] = []  # the outcomes that each act had
        self.weight = 1.0

    def decide(self, probability):
        accepted = min(1.0, float(probability))
        return self._next([(True, accepted), (False, 1.0 - accepted)])

    def draw(self, weights):
        return self._next(list(enumerate((weights / weights.sum()).tolist())))

    def runs(self) -> Iterator["Enumeration"]:
        while True:
            self._acts, self.weight = [], 1.0
            yield self
            chosen = self._script[: len(self._acts)]
            while chosen and chosen[-1] + 1 == len(self._acts[len(chosen) - 1]):
                chosen.pop()
            if not chosen:
                return
            chosen[-1] += 1
            self._script = chosen

    def _next(self, outcomes):
        possible = [(value, weight) for value, weight in outcomes if weight > 0.0]
        if len(self._acts) == len(self._script):
            self._script.append(0)
        value, weight = possible[self._script[len(self._acts)]]
        self._acts.append(possible)
        self.weight *= weight
        return value


class ToyModel:
    """A distribution for every prefix; the same prefix always has the same."""

    def __init__(self, vocab_size: int, seed: int, sharpness: float = 1.5, zeros: bool = False) -> None:
        self.vocab_size, self._seed, self._sharpness, self._zeros = vocab_size, seed, sharpness, zeros

    def after(self, prefix: tuple[int, ...]) -> np.ndarray:
        generator = np.random.default_rng([self._seed, len(prefix), *prefix])
        weights = np.exp(self._sharpness * generator.normal(size=self.vocab_size))
        if self._zeros:
            weights[generator.integers(self.vocab_size)] = 0.0
        return weights / weights.sum()

    def rows(self, tree: Tree) -> np.ndarray:
        paths = [(), *(trees.path_tokens(tree, node) for node in range(len(tree)))]
        return np.array([self.after(tokens) for tokens in paths])


def draw_chain(draft: ToyModel, depth: int, source) -> Tree:
    tokens: tuple[int, ...] = ()
    for _ in range(depth):
        tokens += (source.draw(draft.after(tokens)),)
    return trees.chain(tokens, [1.0] * depth)


def draw_siblings(draft: ToyModel, widths: tuple[int, ...], source) -> Tree:
    """`widths[d]` children below every node of depth d, drawn without replacement."""
    tokens, parents, level = [], [], [(-1, ())]
    for width in widths:
        next_level = []
        for parent, prefix in level:
            left = draft.after(prefix)
            for _ in range(min(width, np.count_nonzero(left))):
                token = source.draw(left)
                left = np.where(np.arange(len(left)) == token, 0.0, left)
                next_level.append((len(tokens), (*prefix, token)))
                tokens.append(token)
                parents.append(parent)
        level = next_level
    return Tree(tuple(tokens), tuple(parents), (1.0,) * len(tokens))


def pick_likeliest(draft: ToyModel, widths: tuple[int, ...], source) -> Tree:
    """As `draw_siblings`, but the likeliest children; nothing is random."""
    tokens, parents, level = [], [], [(-1, ())]
    for width in widths:
        next_level = []
        for parent, prefix in level:
            for token in np.argsort(-draft.after(prefix))[:width].tolist():
                next_level.append((len(tokens), (*prefix, token)))
                tokens.append(token)
                parents.append(parent)
        level = next_level
    return Tree(tuple(tokens), tuple(parents), (1.0,) * len(tokens))


Propose = Callable[[ToyModel, object], Tree]


def outcomes(rule, propose: Propose, target: ToyModel, draft: ToyModel):
    """Each run's tokens, number kept, and probability."""
    for source in Enumeration().runs():
        tree = propose(draft, source)
        verdict = rule(tree, target.rows(tree), draft.rows(tree), source)
        tokens = tuple(tree.tokens[node] for node in verdict.kept_nodes)
        yield (*tokens, verdict.next_token), len(verdict.kept_nodes), source.weight


def deviation(rule, propose: Propose, target: ToyModel, draft: ToyModel, length: int) -> float:
    """The largest error of the joint probability of `length` tokens.

    A round that yields fewer is continued by the target alone, one that yields
    more is cut; neither changes a distribution that was right.
    """
    joint = np.zeros((target.vocab_size,) * length)
    for tokens, _, weight in outcomes(rule, propose, target, draft):
        for rest in itertools.product(range(target.vocab_size), repeat=max(0, length - len(tokens))):
            probability = weight
            for index, token in enumerate(rest):
                probability *= target.after((*tokens, *rest[:index]))[token]
            joint[(*tokens, *rest)[:length]] += probability
    expected = np.ones_like(joint)
    for sequence in itertools.product(range(target.vocab_size), repeat=length):
        for index, token in enumerate(sequence):
            expected[sequence] *= target.after(sequence[:index])[token]
    return float(np.abs(joint - expected).max())


def chain_of(depth: int) -> Propose:
    return lambda draft, source: draw_chain(draft, depth, source)


def siblings_of(*widths: int) -> Propose:
    return lambda draft, source: draw_siblings(draft, widths, source)


def likeliest_of(*widths: int) -> Propose:
    return lambda draft, source: pick_likeliest(draft, widths, source)


EXACT_CASES = [
    ("chain", chain_of(1), 4, 2),
    ("chain", chain_of(2), 3, 3),
    ("chain", chain_of(3), 2, 4),
    ("block", chain_of(1), 4, 2),
    ("block", chain_of(2), 3, 3),
    ("block", chain_of(3), 2, 4),
    ("point-mass", likeliest_of(2, 2), 4, 3),
    ("point-mass", likeliest_of(3, 1, 1), 3, 4),
    ("point-mass", chain_of(2), 3, 3),  # also exact when the nodes were drawn
    ("without-replacement", siblings_of(1, 1), 3, 3),
    ("without-replacement", siblings_of(2), 4, 2),
    ("without-replacement", siblings_of(3), 4, 2),
    ("without-replacement", siblings_of(2, 1), 3, 3),
    ("without-replacement", siblings_of(3), 3, 2),  # every token is drafted
]


@pytest.mark.parametrize("zeros", [False, True], ids=["full", "zeros"])
@pytest.mark.parametrize(("name", "propose", "vocab_size", "length"), EXACT_CASES)
def test_output_has_the_targets_joint_distribution(name, propose, vocab_size, length, zeros):
    for seed in range(4):
        target, draft = ToyModel(vocab_size, seed, zeros=zeros), ToyModel(vocab_size, seed + 100, zeros=zeros)

        assert deviation(REJECTION_RULES[name], propose, target, draft, length) < 1e-12


@pytest.mark.parametrize(
    ("name", "propose"),
    [
        ("chain", chain_of(2)),
        ("block", chain_of(2)),
        ("without-replacement", siblings_of(2, 1)),
    ],
)
def test_a_draft_from_the_target_itself_is_kept_whole(name, propose):
    model = ToyModel(3, 5)

    runs = list(outcomes(REJECTION_RULES[name], propose, model, model))

    assert sum(weight for _, _, weight in runs) == pytest.approx(1.0)
    assert sum(weight * num_kept for _, num_kept, weight in runs) == pytest.approx(2.0)
    assert deviation(REJECTION_RULES[name], propose, model, model, 3) < 1e-12


def expected_kept(rule, propose: Propose, target: ToyModel, draft: ToyModel) -> float:
    return sum(weight * num_kept for _, num_kept, weight in outcomes(rule, propose, target, draft))


def test_block_keeps_at_least_as_much_as_the_chain_rule():
    gains = []
    for seed in range(8):
        target, draft = ToyModel(2, seed), ToyModel(2, seed + 100)
        by_chain = expected_kept(REJECTION_RULES["chain"], chain_of(3), target, draft)
        by_block = expected_kept(REJECTION_RULES["block"], chain_of(3), target, draft)
        gains.append(by_block - by_chain)

    assert min(gains) > -1e-12
    assert max(gains) > 1e-3


class ConstantModel(ToyModel):
    def __init__(self, *probabilities: float) -> None:
        super().__init__(len(probabilities), 0)
        self._probabilities = np.array(probabilities)

    def after(self, prefix):
        return self._probabilities


def test_expected_length_is_that_of_the_papers_example():
    # Sun et al., section 1: 10/9 accepted tokens by the chain rule, 11/9 by the block rule
    target, draft = ConstantModel(1 / 3, 2 / 3), ConstantModel(2 / 3, 1 / 3)

    assert expected_kept(REJECTION_RULES["chain"], chain_of(2), target, draft) == pytest.approx(10 / 9)
    assert expected_kept(REJECTION_RULES["block"], chain_of(2), target, draft) == pytest.approx(11 / 9)


def test_point_mass_keeps_what_drawing_from_the_target_would_find():
    target, draft = ToyModel(4, 3), ToyModel(4, 4)
    picked = np.argsort(-draft.after(()))[:2]

    kept = expected_kept(REJECTION_RULES["point-mass"], likeliest_of(2), target, draft)

    assert kept == pytest.approx(target.after(())[picked].sum())


# Wrong variants: the check above must notice each of them.


def one_too_many(tree, target_probs, draft_probs, source):
    verdict = rejection.chain_residual(tree, target_probs, draft_probs, source)
    num_kept = min(len(verdict.kept_nodes) + 1, len(tree))
    return Verdict(tuple(range(num_kept)), verdict.next_token)


def residual_not_subtracted(tree, target_probs, draft_probs, source):
    for node, token in enumerate(tree.tokens):
        if not source.decide(target_probs[node, token] / draft_probs[node, token]):
            return Verdict(tuple(range(node)), source.draw(target_probs[node]))
    return Verdict(tuple(range(len(tree))), source.draw(target_probs[-1]))


def next_token_from_the_draft(tree, target_probs, draft_probs, source):
    verdict = rejection.chain_residual(tree, target_probs, draft_probs, source)
    if len(verdict.kept_nodes) == len(tree):
        return Verdict(verdict.kept_nodes, source.draw(draft_probs[-1]))
    return verdict


def siblings_not_renormalised(tree, target_probs, draft_probs, source):
    remaining, draft = target_probs[0], draft_probs[0].copy()
    for node, token in enumerate(tree.tokens):  # depth 1 only
        if source.decide(remaining[token] / draft[token]):
            return Verdict((node,), source.draw(target_probs[node + 1]))
        remaining = np.maximum(remaining - draft, 0.0)
        remaining = remaining / remaining.sum()
        draft[token] = 0.0
    return Verdict((), source.draw(remaining))


def picked_not_struck(tree, target_probs, draft_probs, source):
    for node, token in enumerate(tree.tokens):  # depth 1 only
        if source.decide(target_probs[0, token]):
            return Verdict((node,), source.draw(target_probs[node + 1]))
    return Verdict((), source.draw(target_probs[0]))


def block_with_the_chains_residual(tree, target_probs, draft_probs, source):
    verdict = rejection.block(tree, target_probs, draft_probs, source)
    num_kept = len(verdict.kept_nodes)
    if num_kept < len(tree):
        residual = np.maximum(target_probs[num_kept] - draft_probs[num_kept], 0.0)
        return Verdict(verdict.kept_nodes, source.draw(residual))
    return verdict


def always_the_likeliest(tree, target_probs, draft_probs, source):
    verdict = rejection.chain_residual(tree, target_probs, draft_probs, source)
    return Verdict(verdict.kept_nodes, int(target_probs[len(verdict.kept_nodes)].argmax()))


@pytest.mark.parametrize(
    ("mutant", "propose", "length"),
    [
        (one_too_many, chain_of(2), 3),
        (residual_not_subtracted, chain_of(2), 2),
        (next_token_from_the_draft, chain_of(2), 3),
        (siblings_not_renormalised, siblings_of(2), 2),
        (picked_not_struck, likeliest_of(2), 2),
        (block_with_the_chains_residual, chain_of(2), 3),
        (always_the_likeliest, chain_of(2), 3),
        (rejection.chain_residual, likeliest_of(1, 1), 3),  # nodes that were not drawn
        (rejection.without_replacement, likeliest_of(2), 2),
    ],
)
def test_a_wrong_rule_is_caught(mutant, propose, length):
    # among a few models, since a fault may have nothing to go wrong with one
    pairs = [(ToyModel(3, seed), ToyModel(3, seed + 100)) for seed in range(4)]

    assert max(deviation(mutant, propose, target, draft, length) for target, draft in pairs) > 1e-3


# Drafts that lie, and accidents of rounding.


@pytest.mark.parametrize("name", ["chain", "block", "without-replacement"])
def test_a_node_that_cannot_have_been_drawn_does_no_harm(name):
    target, draft = ToyModel(3, 1), ConstantModel(0.5, 0.5, 0.0)

    assert deviation(REJECTION_RULES[name], lambda *_: trees.chain([2, 2], [1.0, 1.0]), target, draft, 2) < 1e-12


class AlwaysRejecting(GeneratorSource):
    def decide(self, probability):
        return False


@pytest.mark.parametrize("name", sorted(REJECTION_RULES))
def test_a_rejection_that_only_rounding_explains_falls_back_to_the_target(name):
    certain = np.array([[0.0, 1.0, 0.0]] * 3)
    source = AlwaysRejecting(np.random.default_rng(0))

    assert REJECTION_RULES[name](trees.chain([1, 1], [1.0, 1.0]), certain, certain, source).next_token == 1


@pytest.mark.parametrize("name", sorted(REJECTION_RULES))
def test_an_empty_tree_yields_one_token_of_the_target(name):
    source = GeneratorSource(np.random.default_rng(0))

    assert REJECTION_RULES[name](Tree(), np.array([[0.0, 1.0]]), np.array([[0.5, 0.5]]), source) == Verdict((), 1)


@pytest.mark.parametrize("name", ["chain", "block"])
def test_chain_rules_refuse_branches(name):
    branching = Tree((0, 1), (-1, -1), (0.5, 0.5))
    rows = np.full((3, 2), 0.5)

    with pytest.raises(ConfigError, match="branches"):
        REJECTION_RULES[name](branching, rows, rows, GeneratorSource(np.random.default_rng(0)))


class FixedUniform:
    def __init__(self, value: float) -> None:
        self.random = lambda: value


@pytest.mark.parametrize(
    ("uniform", "index"), [(0.0, 1), (0.24, 1), (0.26, 3), (1.0 - 2**-53, 3)], ids=["zero", "low", "high", "one"]
)
def test_drawing_passes_over_tokens_without_weight(uniform, index):
    assert GeneratorSource(FixedUniform(uniform)).draw(np.array([0.0, 0.1, 0.0, 0.3, 0.0])) == index


def test_decisions_are_certain_at_zero_and_one():
    assert not GeneratorSource(FixedUniform(0.0)).decide(0.0)
    assert GeneratorSource(FixedUniform(1.0 - 2**-53)).decide(1.0)
