"""The index of texts, and the trees that grow from it, against a search that looks at every substring."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstart._lookup import Match, SuffixAutomaton

NOVELTY = 4.0
MAX_CONTEXTS = 2
MAX_CONTINUATIONS = 32
MAX_COUNTED_CONTEXTS = 32
MIN_PATH_PROBABILITY = 0.05

Texts = list[list[int]]
Nodes = list[tuple[int, int, float]]

tokens = st.integers(0, 2)
texts_strategy = st.lists(st.lists(tokens, min_size=1, max_size=14), min_size=1, max_size=4)


def build(texts: Texts) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for text in texts:
        automaton.begin_text()
        automaton.extend(text)
    return automaton


def find(automaton: SuffixAutomaton, needle: list[int]) -> Match:
    return automaton.follow(Match(), needle)


def grow(
    automaton: SuffixAutomaton,
    match: Match,
    *,
    min_match: int = 1,
    max_nodes: int = 16,
    max_depth: int = 16,
    min_path_probability: float = 0.0,
) -> Nodes:
    """Token, parent and path probability of each node."""
    return list(
        zip(
            *automaton.grow(
                match,
                min_match=min_match,
                max_nodes=max_nodes,
                max_depth=max_depth,
                min_path_probability=min_path_probability,
            ),
            strict=True,
        )
    )


def occurrences(texts: Texts, needle: list[int]) -> list[int]:
    """Places of the last token of every occurrence, in tokens from the beginning of all texts."""
    ends, offset = [], 0
    for text in texts:
        for end in range(len(needle), len(text) + 1):
            if text[end - len(needle) : end] == needle:
                ends.append(offset + end - 1)
        offset += len(text)
    return ends


def suffix(text: list[int], length: int) -> list[int]:
    return text[len(text) - length :]


def longest_suffix(texts: Texts, text: list[int], min_occurrences: int) -> int:
    lengths = range(len(text), 0, -1)
    return next((n for n in lengths if len(occurrences(texts, suffix(text, n))) >= min_occurrences), 0)


def expected_guesses(texts: Texts, context: list[int], reached: float, min_match: int) -> Nodes:
    """Token, latest place and path probability of what followed a string and, for what that leaves, shorter ones."""
    guesses: Nodes = []
    guessed: set[int] = set()
    contexts = 0
    while len(context) >= min_match and contexts < MAX_CONTEXTS and reached >= MIN_PATH_PROBABILITY:
        followed = {token: occurrences(texts, [*context, token]) for token in {t for text in texts for t in text}}
        seen = sorted((ends[0], token) for token, ends in followed.items() if ends)[:MAX_CONTINUATIONS]
        new = [token for _, token in seen if token not in guessed]
        if new:
            contexts += 1
            novelty = NOVELTY / len(context) ** 2
            share = reached / (sum(len(followed[token]) for token in new) + novelty)
            guessed.update(new)
            guesses += [(token, followed[token][-1], share * len(followed[token])) for token in new]
            reached = share * novelty
        context = suffix(
            context, longest_suffix(texts, context[1:], min_occurrences=len(occurrences(texts, context)) + 1)
        )
    return [guess for guess in guesses if guess[2] >= MIN_PATH_PROBABILITY]


def expected_tree(
    texts: Texts,
    context: list[int],
    *,
    min_match: int,
    max_nodes: int,
    max_depth: int,
    min_path_probability: float,
) -> Nodes:
    nodes: Nodes = []
    waiting: list[tuple[float, int, int, int, int, int, list[int]]] = []
    order, node, depth, reached = 0, -1, 0, 1.0
    while True:
        if depth < max_depth:
            guesses = expected_guesses(texts, context, reached, min_match)
            known = {token: longest_suffix(texts, [*context, token], min_occurrences=1) for token, _, _ in guesses}
            for token, latest_end, path_probability in guesses:
                order += 1
                after = suffix([*context, token], known[token])
                heappush(waiting, (-path_probability, -latest_end, order, token, node, depth + 1, after))
        if not waiting or len(nodes) == max_nodes or (nodes and -waiting[0][0] < min_path_probability):
            return nodes
        negative_probability, _, _, token, parent, depth, context = heappop(waiting)
        node, reached = len(nodes), -negative_probability
        nodes.append((token, parent, reached))


@given(
    texts_strategy,
    st.lists(tokens, max_size=5),
    st.integers(1, 3),
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]),
)
# two nodes that are alike but for which of them was found first
@example([[7, 8, 1, 5], [7, 8, 2, 5], *([[5, 6]] * 4)], [7, 8], 1, 12, 5, 0.0)
def test_trees_grow_as_a_search_of_all_substrings_says(
    texts: Texts, text: list[int], min_match: int, max_nodes: int, max_depth: int, min_path_probability: float
) -> None:
    automaton = build(texts)
    match = find(automaton, text)
    known = longest_suffix(texts, text, min_occurrences=1)
    assert match.length == known
    found = grow(
        automaton,
        match,
        min_match=min_match,
        max_nodes=max_nodes,
        max_depth=max_depth,
        min_path_probability=min_path_probability,
    )
    assert found == expected_tree(
        texts,
        suffix(text, known),
        min_match=min_match,
        max_nodes=max_nodes,
        max_depth=max_depth,
        min_path_probability=min_path_probability,
    )


@given(texts_strategy)
def test_match_is_the_longest_suffix_that_occurred_before(texts: Texts) -> None:
    automaton = SuffixAutomaton()
    for index, text in enumerate(texts):
        automaton.begin_text()
        for end in range(1, len(text) + 1):
            automaton.extend(text[end - 1 : end])
            told = [*texts[:index], text[:end]]
            length = longest_suffix(told, text[:end], min_occurrences=2)
            assert automaton.match.length == length
            assert grow(automaton, automaton.match) == grow(automaton, find(automaton, suffix(text[:end], length)))


@given(st.lists(st.tuples(st.integers(0, 1), tokens), max_size=40))
def test_a_reader_finds_the_longest_match_while_the_text_it_reads_against_grows(steps: list[tuple[int, int]]) -> None:
    automaton, read, match = SuffixAutomaton(), [], Match()
    written: list[int] = []
    for is_read, token in steps:
        if not is_read:
            automaton.extend([token])
            written.append(token)
            continue
        before = match.length
        match = automaton.follow(match, [token])
        read.append(token)
        # the longest that extends what was known: new text may have made a longer one, which is found when read anew
        assert match.length == longest_suffix([written], suffix(read, min(before + 1, len(read))), min_occurrences=1)
        assert grow(automaton, match) == grow(automaton, find(automaton, suffix(read, match.length)))


def test_a_match_whose_state_was_split_is_not_taken_for_a_longer_one() -> None:
    automaton = SuffixAutomaton()
    automaton.extend([1, 2, 3])
    match = find(automaton, [3])  # in the state of "1 2 3", "2 3" and "3"
    automaton.extend([9, 2, 3, 5])  # now "2 3" and "3" have their own
    assert automaton.follow(match, [5]).length == 2  # "3 5", though "2 3 5" occurs too


@given(texts_strategy)
def test_states_stay_below_twice_the_tokens(texts: Texts) -> None:
    automaton = build(texts)
    assert automaton.num_tokens == sum(map(len, texts))
    assert automaton.num_states <= 2 * automaton.num_tokens + 1


def test_memory_of_a_token_is_bounded() -> None:
    # with a different token after each "0", nearly all transitions are those of two states
    for text in ([token for number in range(1, 5001) for token in (0, number)], [7] * 10_000, list(range(10_000))):
        automaton = build([text])
        assert automaton.num_bytes <= 240 * automaton.num_tokens


def test_counting_is_bounded_where_a_token_ends_endless_contexts() -> None:
    automaton = SuffixAutomaton()
    length = 4 * MAX_COUNTED_CONTEXTS
    automaton.extend([7] * length)
    assert automaton.match.length == length - 1
    # "7 7" ended a counted context only while the text was short, and is never counted too often
    [(token, parent, path_probability)] = grow(automaton, find(automaton, [7]), max_nodes=1)
    assert (token, parent) == (7, -1)
    assert path_probability == MAX_COUNTED_CONTEXTS / (MAX_COUNTED_CONTEXTS + NOVELTY)


def test_of_many_continuations_those_that_were_seen_first_are_looked_at() -> None:
    # 40 tokens followed "0 0 0 0", the last of them most often
    automaton = build([[*([0] * 4), token] for token in [*range(1, 41), *([40] * 40), *([2] * 20)]])
    found = grow(automaton, find(automaton, [0] * 4), min_match=4, max_depth=1)
    assert found == [(2, -1, 21 / (31 + 21 + NOVELTY / 16))]


def test_tokens_that_are_none_are_refused_and_the_largest_is_not() -> None:
    automaton = SuffixAutomaton()
    automaton.extend([2**31 - 1, 0, 2**31 - 1])
    assert automaton.match.length == 1
    with pytest.raises(ValueError, match="-1"):
        automaton.extend([0, -1])
    with pytest.raises(TypeError):
        automaton.extend([0, 2**31])
    assert automaton.num_tokens == 3


def test_a_match_in_another_index_is_refused() -> None:
    automaton = SuffixAutomaton()
    automaton.extend([1, 2, 3])
    match = find(automaton, [1, 2, 3])
    with pytest.raises(ValueError, match="another"):
        SuffixAutomaton().follow(match, [1])
    with pytest.raises(ValueError, match="another"):
        grow(SuffixAutomaton(), match)


def test_a_context_of_no_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="min_match"):
        grow(SuffixAutomaton(), Match(), min_match=0)
