"""A drafter that looks up what followed the same words before.

It costs no model: the longest earlier match of the text's end, in the prompt,
the output and optionally in earlier outputs, says what may follow. Where the
same words were followed by several tokens, the tree branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from headstart._lookup import SuffixAutomaton
from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.decoding.earlier_texts import EarlierTexts, Reader
from headstart.errors import ConfigError
from headstart.records import EMPTY_TREE, SamplingParams, Tree

# A match in earlier outputs need not be known beyond this length.
MAX_EARLIER_MATCH = 64


@dataclass(slots=True)
class _LookupState:
    """What is known of one sequence.

    Attributes:
        text: all of it.
        prompt_length: tokens of it that were given.
        num_before: tokens that were known before the last ones were told.
        automaton: index of the text, as far as it has been read.
        reader: reads earlier outputs beside it.
    """

    text: list[int]
    prompt_length: int
    num_before: int
    automaton: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    reader: Reader | None = None

    def catch_up(self) -> None:
        """Index what has not been read yet (a fraction of a microsecond a token)."""
        new = self.text[self.automaton.num_tokens :]
        self.automaton.extend(new)
        if self.reader is not None and new:
            self.reader.read(self.text, len(new), MAX_EARLIER_MATCH)


class LookupDrafter:
    """Proposes what followed the longest earlier match of the text's end.

    The text is read when guesses are asked for, so that where none pay none of its time goes into that.
    Deterministic: the same texts and questions in the same order give the same trees.

    Args:
        min_match: tokens that must match, at least 1. More spares a few
            microseconds a round and gives up the guesses after short matches,
            which the policy gives rows only where they pay.
        remember: look in earlier outputs of this engine too. What is proposed
            then depends on other sequences; what is written does not.
        max_remembered_tokens: bound on those outputs, at least 2.

    Raises:
        ConfigError: a value is out of its range.

    Source: Saxena, "Prompt Lookup Decoding" (2023); Oliaro et al.,
    "SuffixDecoding" (arXiv:2411.04975), for earlier outputs and counts.
    """

    name = "lookup"

    def __init__(self, *, min_match: int = 1, remember: bool = False, max_remembered_tokens: int = 100_000) -> None:
        """Begin with no earlier outputs."""
        if min_match < 1:
            raise ConfigError(f"min_match = {min_match}: it must be at least 1 token, the default.")
        if max_remembered_tokens < 2:
            raise ConfigError(f"max_remembered_tokens = {max_remembered_tokens}: it must be at least 2.")
        self._min_match = min_match
        self._earlier = EarlierTexts(max_remembered_tokens) if remember else None

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> object:
        """Begin a sequence."""
        state = _LookupState(text=list(prompt), prompt_length=len(prompt), num_before=len(prompt))
        if self._earlier is not None:
            state.reader = Reader(self._earlier)
        return state

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Take tokens that became final."""
        sequence = cast(_LookupState, state)
        sequence.num_before = len(sequence.text)
        sequence.text += token_ids

    def backlog(self, state: object, trunk_slots: TrunkSlots) -> int:
        """Tokens to be read before the ones that were told last."""
        sequence = cast(_LookupState, state)
        return max(0, sequence.num_before - sequence.automaton.num_tokens)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """One tree a request; empty where nothing long enough matches."""
        return [self._tree(cast(_LookupState, request.state), request) for request in requests]

    def close(self, state: object) -> None:
        """Forget a sequence, or remember its output."""
        if self._earlier is not None:
            sequence = cast(_LookupState, state)
            self._earlier.add(sequence.text[sequence.prompt_length :])

    def _tree(self, sequence: _LookupState, request: DraftRequest) -> Tree:
        sequence.catch_up()
        # the sequence's own text comes first, so it wins among equally long matches
        automaton, match = sequence.automaton, sequence.automaton.match
        if sequence.reader is not None:
            for earlier_automaton, earlier_match in sequence.reader.matches():
                if earlier_match.length > match.length:
                    automaton, match = earlier_automaton, earlier_match
        if match.length < self._min_match:
            return EMPTY_TREE
        tokens, parents, path_probabilities = automaton.grow(
            match,
            min_match=self._min_match,
            max_nodes=request.max_nodes,
            max_depth=request.max_depth,
            min_path_probability=request.min_path_probability,
        )
        return Tree(tuple(tokens), tuple(parents), tuple(path_probabilities))
