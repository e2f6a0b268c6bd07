"""An index of texts in the native core, as Python sees it. `decoding/lookup.py` drafts with it.

It is a module of its own, since it needs neither a model nor threads.
"""

from collections.abc import Sequence

class Match:
    """Where a string lies in an automaton; made without arguments, the empty string of any."""

    def __init__(self) -> None: ...
    @property
    def length(self) -> int:
        """Tokens of the string."""

class SuffixAutomaton:
    """All substrings of one or several texts, with counts and latest places.

    Appending a token takes constant time on average (some 0.1 microseconds).
    No substring runs across the border of two texts. Memory is some 100 bytes
    a token.
    """

    def __init__(self) -> None:
        """Begin with an empty text."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def num_states(self) -> int:
        """Sets of substrings that are told apart, fewer than two a token and the empty string's."""

    @property
    def num_bytes(self) -> int:
        """Memory taken."""

    @property
    def match(self) -> Match:
        """The longest suffix of the present text that occurred before, in it or in an earlier text."""

    def begin_text(self) -> None:
        """Draw a border: the tokens to come are a new text."""

    def extend(self, token_ids: Sequence[int], /) -> None:
        """Append tokens to the present text.

        Args:
            token_ids: each between 0 and 2**31 - 1.

        Raises:
            ValueError: a token is negative, or there would be more than 2**29;
                nothing was appended.
            TypeError: a token does not fit 32 bits; nothing was appended.
        """

    def follow(self, match: Match, token_ids: Sequence[int], /) -> Match:
        """The longest suffix of a text that occurs here, going on from what it was before.

        Args:
            match: the longest of a text that is read beside this automaton;
                `Match()` at its beginning. Texts that were added since may
                hold a longer one; it is found when the text is read anew.
            token_ids: the text's next tokens.
        """

    def grow(
        self, match: Match, *, min_match: int, max_nodes: int, max_depth: int, min_path_probability: float
    ) -> tuple[list[int], list[int], list[float]]:
        """What may follow a text that ends with `match`: tokens, parents and path probabilities of a tree.

        The likeliest nodes come first. Where the same words were followed by
        several tokens the tree branches, and what the longest match leaves
        open is shared out by the next shorter one.

        Args:
            match: where the text's end lies.
            min_match: tokens of a context that is asked, at least 1.
            max_nodes: nodes at most.
            max_depth: depth at most.
            min_path_probability: nodes below are left out, but for the best one.
        """
