"""Drafted decoding writes what plain decoding writes: law, trees and verification together.

The model is a table of random logits, a function of the whole text. Trees hold
wrong guesses and right ones. Faulty variants go through the same comparison.
"""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.decoding import trees, verify
from headstart.decoding.law import ReferenceChooser
from headstart.records import SamplingParams, Tree, Verdict

VOCAB_SIZE = 6
PROMPT = (0, 3, 0)
END_TOKENS = (5,)
LENGTH = 12


def model(text: tuple[int, ...]) -> np.ndarray:
    """Whole numbers, so that ties come up."""
    generator = random.Random(str(text))
    return np.array([generator.randint(-2, 2) for _ in range(VOCAB_SIZE)], np.float32)


def make_chooser(params: SamplingParams, seed: int) -> ReferenceChooser:
    return ReferenceChooser(params, seed, PROMPT, END_TOKENS, VOCAB_SIZE)


def decode_plainly(params: SamplingParams, seed: int) -> list[int]:
    chooser = make_chooser(params, seed)
    written: list[int] = []
    while len(written) < LENGTH:
        text = (*PROMPT, *written)
        token, _ = chooser.choose(model(text), len(text))
        chooser.extend([token])
        written.append(token)
    return written


def guess(right: list[int], generator: random.Random) -> Tree:
    """A tree that holds a part of the right continuation among random branches."""
    num_right = generator.randint(0, min(4, len(right)))
    rightly = trees.chain(right[:num_right], [0.5] * num_right)
    size = generator.randint(0, 5)
    randomly = Tree(
        tuple(generator.randrange(VOCAB_SIZE) for _ in range(size)),
        tuple(generator.randint(-1, node - 1) for node in range(size)),
        (0.1,) * size,
    )
    return trees.sanitise(trees.merge([randomly, rightly]), VOCAB_SIZE, 8, 8)


def rows_choices(chooser, text, tree, *, with_path=True):
    """The trunk's choice after the root and after each node."""
    paths = [(), *(trees.path_tokens(tree, node) for node in range(len(tree)))]
    return [
        chooser.choose(model((*text, *path)), len(text) + len(path), path if with_path else ())[0] for path in paths
    ]


def decode_with_drafts(
    params: SamplingParams,
    seed: int,
    right: list[int],
    draft_seed: int,
    *,
    verify_tree=verify.verify,
    counted=lambda tree, verdict: [tree.tokens[node] for node in verdict.kept_nodes],
    with_path=True,
) -> list[int]:
    chooser = make_chooser(params, seed)
    generator = random.Random(draft_seed)
    written: list[int] = []
    while len(written) < LENGTH:
        tree = guess(right[len(written) :], generator)
        verdict = verify_tree(tree, rows_choices(chooser, (*PROMPT, *written), tree, with_path=with_path))
        chooser.extend([*counted(tree, verdict), verdict.next_token])
        written += [*(tree.tokens[node] for node in verdict.kept_nodes), verdict.next_token]
    return written[:LENGTH]


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    top_k=st.sampled_from([0, 2, 4]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.7]),
    logit_bias=st.sampled_from([{}, {1: 2.0, 2: -np.inf}]),
    allowed_tokens=st.sampled_from([None, (0, 1, 4, 5)]),
    min_tokens=st.sampled_from([0, 5]),
)


@settings(max_examples=200)
@given(PARAMS, st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_drafts_change_nothing(params, seed, draft_seed):
    plain = decode_plainly(params, seed)

    assert decode_with_drafts(params, seed, plain, draft_seed) == plain


def test_right_guesses_are_kept():
    plain = decode_plainly(SamplingParams(temperature=1.0), 3)
    chooser = make_chooser(SamplingParams(temperature=1.0), 3)
    tree = trees.chain(plain[:6], [1.0] * 6)

    verdict = verify.verify(tree, rows_choices(chooser, PROMPT, tree))

    assert verdict == Verdict((0, 1, 2, 3, 4, 5), plain[6])


def keep_one_too_many(tree: Tree, choices: list[int]) -> Verdict:
    verdict = verify.verify(tree, choices)
    below = trees.children(tree)[verdict.kept_nodes[-1] + 1 if verdict.kept_nodes else 0]
    return Verdict((*verdict.kept_nodes, *below[:1]), verdict.next_token)


def next_token_of_the_root(tree: Tree, choices: list[int]) -> Verdict:
    return Verdict(verify.verify(tree, choices).kept_nodes, choices[0])


def all_drafted(tree: Tree, verdict: Verdict) -> list[int]:
    return list(tree.tokens)


PENALISED = SamplingParams(temperature=0.7, frequency_penalty=1.0, min_tokens=6)


@pytest.mark.parametrize(
    "fault",
    [
        {"verify_tree": keep_one_too_many},
        {"verify_tree": next_token_of_the_root},
        {"counted": all_drafted},
        {"counted": lambda tree, verdict: []},
        {"with_path": False},
    ],
    ids=["one-too-many", "wrong-next-token", "rejected-counted", "kept-not-counted", "path-not-counted"],
)
def test_a_fault_is_noticed(fault):
    plain = [decode_plainly(PENALISED, seed) for seed in range(5)]

    assert [decode_with_drafts(PENALISED, seed, plain[seed], 1) for seed in range(5)] == plain
    assert [decode_with_drafts(PENALISED, seed, plain[seed], 1, **fault) for seed in range(5)] != plain
