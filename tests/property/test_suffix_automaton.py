"""The automaton against a search that looks at every substring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.decoding.suffix_automaton import MAX_COUNTED_CONTEXTS, NO_MATCH, Match, SuffixAutomaton

tokens = st.integers(0, 2)
texts_strategy = st.lists(st.lists(tokens, min_size=1, max_size=14), min_size=1, max_size=4)


def build(texts: list[list[int]]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for text in texts:
        automaton.begin_text()
        automaton.extend(text)
    return automaton


def occurrences(texts: list[list[int]], needle: list[int]) -> list[int]:
    """Places of the last token of every occurrence, in tokens from the beginning of all texts."""
    ends, offset = [], 0
    for text in texts:
        for end in range(len(needle), len(text) + 1):
            if text[end - len(needle) : end] == needle:
                ends.append(offset + end - 1)
        offset += len(text)
    return ends


def locate(automaton: SuffixAutomaton, needle: list[int]) -> Match:
    match = NO_MATCH
    for token in needle:
        match = automaton.advance(match, token)
    return match


def longest_known_suffix(texts: list[list[int]], text: list[int], min_occurrences: int) -> int:
    return max(n for n in range(len(text) + 1) if n == 0 or len(occurrences(texts, text[-n:])) >= min_occurrences)


@given(texts_strategy)
def test_match_is_the_longest_suffix_that_occurred_before(texts: list[list[int]]) -> None:
    automaton = SuffixAutomaton()
    for index, text in enumerate(texts):
        automaton.begin_text()
        for end in range(1, len(text) + 1):
            automaton.extend(text[end - 1 : end])
            told = [*texts[:index], text[:end]]
            assert automaton.match.length == longest_known_suffix(told, text[:end], min_occurrences=2)


@given(texts_strategy, st.lists(tokens, max_size=4))
def test_continuations_are_those_that_follow_with_their_counts_and_last_places(
    texts: list[list[int]], needle: list[int]
) -> None:
    automaton = build(texts)
    if needle and not occurrences(texts, needle):
        assert locate(automaton, needle).length < len(needle)
        return
    found = {
        token: (count, end)
        for count, end, token, _ in automaton.continuations(locate(automaton, needle).state, limit=8)
    }
    expected = {}
    for token in range(3):
        ends = occurrences(texts, [*needle, token])
        if ends:
            expected[token] = (len(ends), ends[-1])
    assert found == expected


@given(texts_strategy)
def test_link_is_the_longest_suffix_with_more_occurrences(texts: list[list[int]]) -> None:
    automaton = build(texts)
    for text in texts:
        match = locate(automaton, text)
        count = len(occurrences(texts, text))
        expected = max(n for n in range(len(text)) if n == 0 or len(occurrences(texts, text[-n:])) > count)
        assert automaton.link(match.state).length == expected


@given(st.lists(st.tuples(st.integers(0, 1), tokens), max_size=40))
def test_a_reader_finds_the_longest_match_while_the_text_it_reads_against_grows(steps: list[tuple[int, int]]) -> None:
    automaton, written, read, match = SuffixAutomaton(), [], [], NO_MATCH
    for is_read, token in steps:
        if not is_read:
            automaton.extend([token])
            written.append(token)
            continue
        before = match.length
        match = automaton.advance(match, token)
        read.append(token)
        # the longest that extends what was known: new text may have made a longer one, which is found when read anew
        candidates = [n for n in range(1, before + 2) if occurrences([written], read[-n:])]
        assert match.length == max(candidates, default=0)
        if match.length:
            # the state truly stands for the matched string
            assert automaton.continuations(match.state, 8) == automaton.continuations(
                locate(automaton, read[-match.length :]).state, 8
            )


def test_a_match_whose_state_was_split_is_not_taken_for_a_longer_one() -> None:
    automaton = SuffixAutomaton()
    automaton.extend([1, 2, 3])
    match = automaton.advance(NO_MATCH, 3)  # in the state of "1 2 3", "2 3" and "3"
    automaton.extend([9, 2, 3, 5])  # now "2 3" and "3" have their own
    assert automaton.advance(match, 5).length == 2  # "3 5", though "2 3 5" occurs too


@given(texts_strategy)
def test_states_stay_below_twice_the_tokens(texts: list[list[int]]) -> None:
    automaton = build(texts)
    assert automaton.num_tokens == sum(map(len, texts))
    assert automaton.num_states <= 2 * automaton.num_tokens + 1


def test_counting_is_bounded_where_a_token_ends_endless_contexts() -> None:
    automaton = SuffixAutomaton()
    length = 4 * MAX_COUNTED_CONTEXTS
    automaton.extend([7] * length)
    assert automaton.match.length == length - 1
    # "7" ended a counted context only while the text was short, and is never counted too often
    (count, _, _, _) = automaton.continuations(0, limit=1)[0]
    assert count == MAX_COUNTED_CONTEXTS


def test_limit_bounds_the_continuations() -> None:
    automaton = SuffixAutomaton()
    for token in range(1, 6):
        automaton.extend([0, token])
    state = locate(automaton, [0]).state
    assert [token for _, _, token, _ in automaton.continuations(state, limit=3)] == [1, 2, 3]
