"""An online suffix automaton over token ids: every substring, found at once.

A *state* stands for a set of substrings that end at the same places; the
longest of them has `length(state)` tokens, and dropping tokens from its front
leads, by way of `link(state)`, to states with more occurrences. A transition
appends a token. The automaton of n tokens has fewer than 2n states.

Source: Blumer et al., "The smallest automaton recognizing the subwords of a
text", Theoretical Computer Science 40 (1985).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

# An occurrence is counted for the so many longest distinct contexts that it ends. Ordinary text has fewer; text
# that repeats one word for ever would have as many as it has tokens, and each new token would cost all of them.
MAX_COUNTED_CONTEXTS = 32

_NONE = -1


class Match(NamedTuple):
    """Where a string lies in an automaton: a state, and the string's number of tokens."""

    state: int
    length: int


NO_MATCH = Match(0, 0)


# A token seen after a string: (how often, where last, its id, state of the string with the token appended). The place
# is the token's index from the automaton's beginning. A plain tuple, for many are made in every round.
Continuation = tuple[int, int, int, int]


class SuffixAutomaton:
    """All substrings of one or several texts, with counts and latest places.

    Appending a token takes constant time on average (some microseconds), finding
    a continuation always. No substring runs across the border of two texts.
    Memory is about 60 bytes a state, and a dict for each state with several
    continuations.
    """

    def __init__(self) -> None:
        """Begin with an empty text."""
        # One entry for each state; state 0 is the empty string. The first transition of a state lies in the
        # arrays and only further ones in a dict, since most states have no more than one.
        self._length = array("i", [0])
        self._link = array("i", [_NONE])
        self._count = array("i", [0])
        self._latest_end = array("i", [_NONE])
        self._first_token = array("i", [_NONE])
        self._first_state = array("i", [_NONE])
        self._further: dict[int, dict[int, int]] = {}
        self._last = 0
        self._match = 0
        self.num_tokens = 0

    @property
    def num_states(self) -> int:
        """States, the empty string's included."""
        return len(self._length)

    @property
    def match(self) -> Match:
        """The longest suffix of the present text that occurred before, in it or in an earlier text."""
        return Match(self._match, self._length[self._match])

    def begin_text(self) -> None:
        """Draw a border: the tokens to come are a new text."""
        self._last = 0
        self._match = 0

    def extend(self, token_ids: Iterable[int]) -> None:
        """Append tokens to the present text.

        Args:
            token_ids: each between 0 and 2**31 - 1.
        """
        for token in token_ids:
            self._last = self._append(token)
            # a state that has been counted stands for strings that occurred before
            self._match = self._last if self._count[self._last] else self._link[self._last]
            self._count_occurrence(self._last)
            self.num_tokens += 1

    def link(self, state: int) -> Match:
        """The longest suffix of the state's strings that has further occurrences."""
        shorter = self._link[state]
        return Match(shorter, self._length[shorter]) if shorter > 0 else NO_MATCH

    def continuations(self, state: int, limit: int) -> list[Continuation]:
        """Tokens seen after the state's strings, at most `limit`, in the order in which they were first seen."""
        token = self._first_token[state]
        if token == _NONE:
            return []
        transitions = [(token, self._first_state[state])]
        further = self._further.get(state)
        if further is not None:
            transitions += islice(further.items(), limit - 1)
        count, latest_end = self._count, self._latest_end
        return [(count[target], latest_end[target], token, target) for token, target in transitions]

    def advance(self, match: Match, token: int) -> Match:
        """The longest suffix of a string that ended with `match`, `token` appended, that occurs here.

        Args:
            match: the longest match of a text that is read beside this
                automaton; `NO_MATCH` at its beginning.
            token: the text's next token.
        """
        state, length = match
        # Since `match` was found its state may have been split, and its string may now belong to the link.
        while state and length <= self._length[self._link[state]]:
            state = self._link[state]
        while True:
            target = self._target(state, token)
            if target != _NONE:
                return Match(target, length + 1)
            if state == 0:
                return NO_MATCH
            state = self._link[state]
            length = self._length[state]

    def _target(self, state: int, token: int) -> int:
        if self._first_token[state] == token:
            return self._first_state[state]
        further = self._further.get(state)
        return further.get(token, _NONE) if further is not None else _NONE

    def _append(self, token: int) -> int:
        """The state of the present text with `token` appended, made if need be."""
        length, link = self._length, self._link
        first_token, first_state, further = self._first_token, self._first_state, self._further
        state = self._last
        target = self._target(state, token)
        if target != _NONE:  # an earlier text begins like this one
            return target if length[target] == length[state] + 1 else self._split(state, token, target)

        new = self._new_state(length[state] + 1)
        while state != _NONE:
            known = first_token[state]
            if known == token:
                target = first_state[state]
                break
            if known == _NONE:
                first_token[state] = token
                first_state[state] = new
            else:
                others = further.get(state)
                if others is None:
                    further[state] = {token: new}
                else:
                    target = others.get(token, _NONE)
                    if target != _NONE:
                        break
                    others[token] = new
            state = link[state]
        if state == _NONE:
            link[new] = 0
        elif length[target] == length[state] + 1:
            link[new] = target
        else:
            link[new] = self._split(state, token, target)
        return new

    def _split(self, state: int, token: int, target: int) -> int:
        """Part `target`'s strings of at most `length(state) + 1` tokens from it; returns their state.

        They are about to occur at a place where the longer ones do not.
        """
        link, first_token, first_state, further = self._link, self._first_token, self._first_state, self._further
        shorter = self._new_state(self._length[state] + 1)
        link[shorter] = link[target]
        self._count[shorter] = self._count[target]
        self._latest_end[shorter] = self._latest_end[target]
        first_token[shorter] = first_token[target]
        first_state[shorter] = first_state[target]
        if target in further:
            further[shorter] = further[target].copy()
        link[target] = shorter
        while state != _NONE:
            if first_token[state] == token:
                if first_state[state] != target:
                    break
                first_state[state] = shorter
            else:
                # the suffixes of a string with a continuation have that continuation too
                others = further[state]
                if others[token] != target:
                    break
                others[token] = shorter
            state = link[state]
        return shorter

    def _new_state(self, length: int) -> int:
        self._length.append(length)
        self._link.append(_NONE)
        self._count.append(0)
        self._latest_end.append(_NONE)
        self._first_token.append(_NONE)
        self._first_state.append(_NONE)
        return len(self._length) - 1

    def _count_occurrence(self, state: int) -> None:
        link, count, latest_end, end = self._link, self._count, self._latest_end, self.num_tokens
        for _ in range(MAX_COUNTED_CONTEXTS):
            if state <= 0:
                return
            count[state] += 1
            latest_end[state] = end
            state = link[state]
