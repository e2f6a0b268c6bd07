"""How a model turns its logits into guesses: in step with the trunk, or by lot.

*Coupled* guessing asks which token the trunk would choose if it had these
logits: same law, same seed, same position, so the same noise. Where the two
models differ little, they then agree in sampling nearly as often as in greedy
decoding. *Drawn* guesses come from the model's own distribution by chance of
their own, as the classical acceptance tests demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headstart.decoding.calibration import Calibrator
from headstart.decoding.drafter import DraftRequest
from headstart.decoding.law import ReferenceChooser
from headstart.decoding.rejection import GeneratorSource
from headstart.engine.draft_state import DraftState, Guess
from headstart.records import SamplingParams
from headstart.runtime.protocol import Choice, Chooser, Trunk


class Guessing(Protocol):
    """One way to guess.

    Attributes:
        keeps_guesses: whether a guess that was not judged in one round may serve in the next.
    """

    keeps_guesses: bool

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The law of a new sequence, as `Trunk.make_chooser`."""

    def wants_more(self, state: DraftState, request: DraftRequest) -> bool:
        """Whether a chain is to go deeper; the depth allowed is not its concern."""

    def guess(self, states: Sequence[DraftState], max_nodes: Sequence[int]) -> list[Guess]:
        """The next guess of each chain, from the pass just run, whose wanted rows are theirs in order."""

    def observe(self, state: DraftState, token_ids: Sequence[int]) -> None:
        """Learn what was written where `state` guessed."""


class CoupledGuessing:
    """The choice of the sequence's law at each position, and how likely the trunk is to make the same."""

    keeps_guesses = True  # a position's choice does not depend on the round

    def __init__(self, trunk: Trunk, *, branches: int, min_path_probability: float) -> None:
        """Guess by the logits of `trunk`.

        Args:
            trunk: the drafting model.
            branches: guesses for one place at most.
            min_path_probability: a chain less likely to be accepted than this is not made longer.
        """
        self._trunk = trunk
        self._branches = branches
        self._min_path_probability = min_path_probability
        # A greedy choice that the model gives 30 % is often another one than the trunk's; a sampled one
        # is mostly the same, for the noise decided it. So the two learn apart.
        self._greedy, self._sampled = Calibrator(), Calibrator()

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The trunk's own law, which also reports the probabilities of what it chooses and of the likeliest."""
        num_reported = self._branches if self._branches > 1 else 0
        return self._trunk.make_chooser(replace(params, logprobs=num_reported), seed, prompt, end_tokens)

    def wants_more(self, state: DraftState, request: DraftRequest) -> bool:
        """As long as the chain is likely, and its next node would be among the `max_nodes` likeliest."""
        if not state.guesses:
            return True
        last = state.path_probability
        num_ahead = sum(probability >= last for probability in state.whole_tree().path_probabilities)
        least = max(self._min_path_probability, request.min_parent_probability, request.min_confidence)
        return last >= least and num_ahead < request.max_nodes

    def guess(self, states: Sequence[DraftState], max_nodes: Sequence[int]) -> list[Guess]:
        """Choose at all rows at once."""
        choices = [
            Choice(row, state.chooser, len(state.tokens) + len(state.guesses), state.path)
            for row, state in enumerate(states)
        ]
        guesses = []
        for state, token, logprobs in zip(states, *self._trunk.choose(choices), strict=True):
            assert logprobs is not None
            others = [(other, logprob) for other, logprob in logprobs.top if other != token][: self._branches - 1]
            tokens = (token, *(other for other, _ in others))
            raw = tuple(min(math.exp(logprob), 1.0) for logprob in (logprobs.chosen, *(value for _, value in others)))
            depth, calibrator = len(state.guesses) + 1, self._calibrator(state)
            guesses.append(Guess(tokens, raw, tuple(calibrator.conditional(value, depth) for value in raw)))
        return guesses

    def observe(self, state: DraftState, token_ids: Sequence[int]) -> None:
        """Learn how often the trunk agrees."""
        self._calibrator(state).observe(state.whole_tree(raw=True), token_ids)

    def _calibrator(self, state: DraftState) -> Calibrator:
        return self._sampled if state.params.temperature > 0.0 else self._greedy


class DrawnGuessing:
    """Draws from the model's distribution under the sequence's law; siblings without replacement.

    How many guesses there are is settled before they are drawn, for a test that
    divides by their distribution is only exact if it does not depend on them.
    """

    keeps_guesses = False  # a test of whole blocks has looked at all of them

    def __init__(self, trunk: Trunk, vocab_size: int, *, branches: int) -> None:
        """Guess by the logits of `trunk`.

        Args:
            trunk: the drafting model.
            vocab_size: entries of the distributions that are reported.
            branches: guesses for one place at most.
        """
        self._trunk = trunk
        self._vocab_size = vocab_size
        self._branches = branches

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The reference law, which can tell its distribution."""
        return ReferenceChooser(params, seed, prompt, end_tokens, self._trunk.vocab_size)

    def wants_more(self, state: DraftState, request: DraftRequest) -> bool:
        """Until all nodes are used up, `branches` of them at each depth."""
        return len(state.guesses) * self._branches < request.max_nodes

    def guess(self, states: Sequence[DraftState], max_nodes: Sequence[int]) -> list[Guess]:
        """Draw one after another; each guess has chance of its own, from (seed, place of the root, depth)."""
        guesses = []
        for row, (state, most) in enumerate(zip(states, max_nodes, strict=True)):
            assert isinstance(state.chooser, ReferenceChooser)
            distribution = self._resized(state.chooser.probabilities(self._trunk.logits(row), state.path))
            depth = len(state.guesses)
            # The place of the root tells rounds apart: for the same reason that guesses are not kept, a
            # position that is guessed again is guessed by fresh chance.
            spawn_key = (len(state.tokens), depth)
            source = GeneratorSource(np.random.default_rng(np.random.SeedSequence(state.seed, spawn_key=spawn_key)))
            left = distribution.copy()
            tokens: list[int] = []
            while len(tokens) < min(self._branches, most - depth * self._branches) and left.any():
                tokens.append(source.draw(left))
                left[tokens[-1]] = 0.0
            probabilities = tuple(float(distribution[token]) for token in tokens)
            guesses.append(Guess(tuple(tokens), probabilities, probabilities, distribution))
        return guesses

    def observe(self, state: DraftState, token_ids: Sequence[int]) -> None:
        """Nothing to learn: how likely a draw is to be accepted changes nothing about it."""

    def _resized(self, distribution: NDArray[np.float64]) -> NDArray[np.float64]:
        """To the trunk's vocabulary; what is cut off is barred by the law, what is added cannot be drawn."""
        resized = np.zeros(self._vocab_size)
        shared = min(len(distribution), self._vocab_size)
        resized[:shared] = distribution[:shared]
        return resized
