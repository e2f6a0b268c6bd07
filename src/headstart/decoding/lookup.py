"""A drafter that looks up what followed the same words before.

It costs no model: the longest earlier match of the text's end, in the prompt,
the output and optionally in earlier outputs, says what may follow. Where the
same words were followed by several tokens, the tree branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import cast

from headstart.decoding.drafter import DraftRequest
from headstart.decoding.earlier_texts import EarlierTexts, Reader
from headstart.decoding.suffix_automaton import Continuation, Match, SuffixAutomaton
from headstart.errors import ConfigError
from headstart.records import EMPTY_TREE, SamplingParams, Tree

# The chance that something new follows a context of m tokens counts as NOVELTY / m**2 occurrences: the longer
# the match, the likelier its continuation, as in the escapes of prediction by partial matching.
NOVELTY = 4.0

# Contexts that are asked at a node: the longest match and, for what it leaves open, the next shorter one.
MAX_CONTEXTS = 2

# Continuations looked at in one context. A lone comma may have hundreds, none of which is likely.
MAX_CONTINUATIONS = 32

# Guesses below this path probability are not built; no cost curve makes them pay.
MIN_PATH_PROBABILITY = 0.05

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
        """Index what has not been read yet (some microseconds a token)."""
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

    def backlog(self, state: object) -> int:
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
        return self._grow(automaton, match, request)

    def _grow(self, automaton: SuffixAutomaton, match: Match, request: DraftRequest) -> Tree:
        """Build the likeliest nodes, best first."""
        tokens: list[int] = []
        parents: list[int] = []
        path_probabilities: list[float] = []
        # (-path probability, -latest end, order of discovery, token, parent, depth, state, length): the order of
        # discovery is unique, so the rest is never compared, and equal candidates stay in a fixed order
        open_nodes: list[tuple[float, int, int, int, int, int, int, int]] = []
        num_found = 0
        node, depth, reached = -1, 0, 1.0
        state, length = match
        while True:
            if depth < request.max_depth:
                for path_probability, (_, latest_end, token, next_state), next_length in self._guesses(
                    automaton, state, length, reached
                ):
                    num_found += 1
                    heappush(
                        open_nodes,
                        (-path_probability, -latest_end, num_found, token, node, depth + 1, next_state, next_length),
                    )
            hopeless = not open_nodes or (tokens and -open_nodes[0][0] < request.min_path_probability)
            if hopeless or len(tokens) == request.max_nodes:
                return Tree(tuple(tokens), tuple(parents), tuple(path_probabilities))
            negative_probability, _, _, token, parent, depth, state, length = heappop(open_nodes)
            node, reached = len(tokens), -negative_probability
            tokens.append(token)
            parents.append(parent)
            path_probabilities.append(reached)

    def _guesses(
        self, automaton: SuffixAutomaton, state: int, length: int, reached: float
    ) -> list[tuple[float, Continuation, int]]:
        """What may follow a context: path probability, continuation, and the length that then matches.

        The longest context speaks first; the probability it leaves to
        something new is shared out by the next shorter one that knows more.

        Args:
            automaton: where the context lies.
            state: its state.
            length: its number of tokens.
            reached: its own path probability.
        """
        guesses: list[tuple[float, Continuation, int]] = []
        guessed: set[int] = set()
        contexts = 0
        while length >= self._min_match and contexts < MAX_CONTEXTS and reached >= MIN_PATH_PROBABILITY:
            new = automaton.continuations(state, MAX_CONTINUATIONS)
            if guessed:
                new = [continuation for continuation in new if continuation[2] not in guessed]
            if new:
                contexts += 1
                novelty = NOVELTY / (length * length)
                share = reached / (sum([continuation[0] for continuation in new]) + novelty)
                for continuation in new:
                    guessed.add(continuation[2])
                    if share * continuation[0] >= MIN_PATH_PROBABILITY:
                        guesses.append((share * continuation[0], continuation, length + 1))
                reached = share * novelty
            state, length = automaton.link(state)
        return guesses
