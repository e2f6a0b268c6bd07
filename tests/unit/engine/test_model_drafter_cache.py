"""The cache of a model that drafts: nothing is run twice, and what it proposes depends on the text alone."""

from __future__ import annotations

import random

import pytest

from headstart.decoding.drafter import DraftRequest
from headstart.decoding.trees import is_chain
from headstart.engine import model_drafter
from headstart.engine.cache import PageAccounts
from headstart.engine.draft_state import DraftState
from headstart.engine.model_drafter import ModelDrafter
from headstart.records import SamplingParams, Tree
from headstart.runtime.protocol import PAGE_TOKENS
from headstart.testing.toy_engine import VOCAB_SIZE, make_similar_trunk, make_toy_drafter

LAWS = (
    SamplingParams(),
    SamplingParams(temperature=0.9, seed=5),
    SamplingParams(repetition_penalty=1.2, frequency_penalty=0.2),
    SamplingParams(temperature=1.0, seed=11, top_k=20, presence_penalty=0.4, min_tokens=12),
)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def test_nothing_is_run_that_was_run_before():
    small = make_similar_trunk()
    drafter = make_toy_drafter(small)
    state = drafter.open(PROMPT, LAWS[0], 0)

    def propose_and_count(max_nodes: int = 4) -> tuple[tuple[int, ...], int]:
        before = small.num_forward_rows
        (tree,) = drafter.propose([DraftRequest(state, max_nodes, 9)])
        assert is_chain(tree)
        assert len(tree) == max_nodes
        return tree.tokens, small.num_forward_rows - before

    tokens, num_rows = propose_and_count()
    assert num_rows == len(PROMPT) + 3  # the last guess of a chain has no row
    assert propose_and_count() == (tokens, 0)  # asked again, it knows
    assert propose_and_count(6)[1] == 2  # and goes on from there
    drafter.extend(state, [*tokens[:2], _other(tokens[2])])  # two right, then another
    tokens, num_rows = propose_and_count()
    assert num_rows == 1 + 3
    drafter.extend(state, [*tokens, 7])  # all right: the last guess and the new root have no rows yet
    tokens, num_rows = propose_and_count()
    assert num_rows == 2 + 3
    drafter.extend(state, tokens[:2])  # only one was tried, and the trunk's own token is the second
    following, num_rows = propose_and_count()
    assert following[:2] == tokens[2:]
    assert num_rows == 2
    for token in (1, 2, 3):  # rounds in which no one asked
        drafter.extend(state, [token])
    assert propose_and_count()[1] == 3 + 3
    drafter.check_integrity()


def _other(token: int) -> int:
    return (token + 1) % VOCAB_SIZE


def wander(seed: int) -> None:
    """Sequences come and go, are asked or not, told what was guessed or not: a tree is that of a fresh drafter."""
    source = random.Random(seed)
    cache_tokens = source.choice([96, 2000])
    drafter = make_toy_drafter(cache_tokens=cache_tokens)
    living: list[tuple[list[int], int, SamplingParams, object]] = []  # text, prompt length, law, state
    for _ in range(40):
        if len(living) < 3:
            prompt = [source.randrange(VOCAB_SIZE) for _ in range(source.choice([1, 5, 16, 30]))]
            params = source.choice(LAWS)
            living.append((prompt, len(prompt), params, drafter.open(prompt, params, 11)))
        asked = [sequence for sequence in living if source.random() < 0.7]
        trees = drafter.propose([DraftRequest(state, 5, 4) for *_, state in asked])
        drafter.check_integrity()
        guessed = dict.fromkeys(range(len(living)), Tree())
        for sequence, tree in zip(asked, trees, strict=True):
            text, num_prompt, params, _ = sequence
            guessed[living.index(sequence)] = tree
            fresh = _fresh_guesses(text, num_prompt, params)
            assert tree.tokens == (fresh if cache_tokens == 2000 else fresh[: len(tree)])
        assert any(tree.tokens for tree in trees) or not asked
        for index, (text, _, _, state) in enumerate(living):
            chain = guessed[index].tokens
            told = [*chain[: source.randint(0, len(chain))], source.randrange(VOCAB_SIZE)]
            if source.random() < 0.3 and len(told) > 1:
                told.pop()  # the trunk's own token was guessed too
            text += told
            drafter.extend(state, told)
        drafter.check_integrity()
        if source.random() < 0.15:
            drafter.close(living.pop(source.randrange(len(living)))[-1])
    for *_, state in living:
        drafter.close(state)
    drafter.check_integrity()


def _fresh_guesses(text: list[int], num_prompt: int, params: SamplingParams) -> tuple[int, ...]:
    drafter = make_toy_drafter()
    state = drafter.open(text[:num_prompt], params, 11)
    if text[num_prompt:]:
        drafter.extend(state, text[num_prompt:])
    return drafter.propose([DraftRequest(state, 5, 4)])[0].tokens


def wander_often() -> None:
    for seed in range(4):
        wander(seed)


def test_what_is_proposed_depends_on_the_text_alone():
    wander_often()


def rejected_row_stays(monkeypatch):
    rejected: set[DraftState] = set()
    original_learn, original_rows = DraftState.learn, model_drafter._rows

    def learn(self, token_ids, accounts, *, keep_guesses):
        if self.path[: len(token_ids)] != tuple(token_ids[: len(self.path)]):
            rejected.add(self)
        original_learn(self, token_ids, accounts, keep_guesses=keep_guesses)

    def rows(parts):
        made = original_rows(parts)
        for index, (state, _, num_rows) in enumerate(parts):
            has_room = state.num_run + num_rows < PAGE_TOKENS * len(state.pages.pages)
            made.committed[index] += state in rejected and has_room
        return made

    monkeypatch.setattr(DraftState, "learn", learn)
    monkeypatch.setattr(model_drafter, "_rows", rows)


def catch_up_leaves_one_out(monkeypatch):
    original = ModelDrafter._behind

    def mutant(self, asking):
        for state, _ in asking:
            state.num_run += state.num_run + 2 < len(state.tokens)
        return original(self, asking)

    monkeypatch.setattr(ModelDrafter, "_behind", mutant)


def rows_of_guesses_lose_their_pages(monkeypatch):
    monkeypatch.setattr(DraftState, "commit", _commit_always)
    original = DraftState.learn

    def mutant(self, token_ids, accounts, *, keep_guesses):
        original(self, token_ids, accounts, keep_guesses=keep_guesses)
        self.commit(accounts)

    monkeypatch.setattr(DraftState, "learn", mutant)


def _commit_always(self: DraftState, accounts: PageAccounts) -> None:
    if self.pages is not None:
        num_slots = min(self.num_run, len(self.tokens)) - self.pages.committed
        accounts.commit(self.pages, num_slots, self.tokens)


@pytest.mark.parametrize(
    "mutant", [rejected_row_stays, catch_up_leaves_one_out, rows_of_guesses_lose_their_pages], ids=lambda m: m.__name__
)
def test_a_wrong_cache_is_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        wander_often()
