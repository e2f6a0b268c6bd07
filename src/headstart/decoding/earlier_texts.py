"""A bounded store of texts that were finished earlier, ready to be searched."""

from __future__ import annotations

from collections.abc import Sequence

from headstart._lookup import Match, SuffixAutomaton


class EarlierTexts:
    """Remembers the latest texts, between half of `max_tokens` and all of it.

    An automaton cannot forget a text, so there are two: a younger one that
    grows, and an older one that is only read. When the younger holds half of
    what is allowed, it takes the older's place.

    Args:
        max_tokens: tokens remembered at most, at least 2.
    """

    def __init__(self, max_tokens: int) -> None:
        """Begin with nothing remembered."""
        self.max_tokens = max_tokens
        self.version = 0
        self.automata: tuple[SuffixAutomaton, ...] = (SuffixAutomaton(),)

    @property
    def num_tokens(self) -> int:
        """Tokens remembered at present."""
        return sum(automaton.num_tokens for automaton in self.automata)

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember a finished text; of one that is too long, the end."""
        generation_tokens = self.max_tokens // 2
        token_ids = token_ids[-generation_tokens:]
        if not token_ids:
            return
        younger = self.automata[-1]
        if younger.num_tokens + len(token_ids) > generation_tokens:
            older, younger = younger, SuffixAutomaton()
            self.automata = (older, younger)
        younger.begin_text()
        younger.extend(token_ids)
        self.version += 1


class Reader:
    """Follows a growing text through the earlier ones: the longest match of its end in each."""

    def __init__(self, texts: EarlierTexts) -> None:
        """Begin with nothing read."""
        self._texts = texts
        self._version = -1
        self._automata: tuple[SuffixAutomaton, ...] = ()
        self._matches: list[Match] = []

    def read(self, text: Sequence[int], num_new: int, max_match: int) -> None:
        """Follow the text's last `num_new` tokens.

        Args:
            text: all of it; it is read again from `max_match` tokens before its
                end when texts were added, for they may match longer.
            num_new: tokens at its end that were not read yet.
            max_match: length to which a match is found for certain.
        """
        if self._version != self._texts.version:
            self._version = self._texts.version
            self._automata = self._texts.automata
            self._matches = [Match()] * len(self._automata)
            num_new = max_match
        new = text[max(len(text) - num_new, 0) :]
        self._matches = [
            automaton.follow(match, new) for automaton, match in zip(self._automata, self._matches, strict=True)
        ]

    def matches(self) -> list[tuple[SuffixAutomaton, Match]]:
        """The longest match in each automaton as of the last `read`, the younger texts' first."""
        return list(zip(self._automata, self._matches, strict=True))[::-1]
