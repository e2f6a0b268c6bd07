"""From the logits of a pass to what each round yields.

`ChoiceVerification` is the usual kind: the trunk chooses at every row, and a
draft is kept as far as it equals the choices, so the tokens are those of plain
decoding. `RejectionVerification` tests drafts against the trunk's distribution
instead: the same distribution, another text for the same seed. It is there to
be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headstart.decoding.drafter import Drafter, Draws
from headstart.decoding.law import ReferenceChooser
from headstart.decoding.rejection import REJECTION_RULES, GeneratorSource
from headstart.decoding.trees import path
from headstart.decoding.verify import Choices, verify
from headstart.engine.passes import Pass
from headstart.engine.scheduler import Round
from headstart.errors import ConfigError, UnsupportedError
from headstart.records import SamplingParams, TokenLogprobs, Verdict
from headstart.runtime.protocol import Choice, Chooser, Trunk


@dataclass(frozen=True, slots=True)
class Decision:
    """What one round yields.

    Attributes:
        kept_nodes: accepted nodes, from the root's child down.
        tokens: their tokens and the trunk's own after them; empty for a round
            that did not reach its root.
        logprobs: one entry for each token, or none.
        error: why nothing could be chosen.
    """

    kept_nodes: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    error: Exception | None = None


_NO_DECISION = Decision()
_REJECTION = "rejection:"
_POINT_MASS = f"{_REJECTION}point-mass"


class Verification(Protocol):
    """How tokens are chosen and drafts judged.

    Attributes:
        name: the name of the rule.
        needs_whole_trees: whether it is only exact if no node was selected by
            what it is; how many there are may depend on earlier rounds alone.
    """

    name: str
    needs_whole_trees: bool

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The law of a new sequence, as `Trunk.make_chooser`."""

    def decide(self, passed: Pass) -> list[Decision]:
        """One decision a round of the pass that the trunk has just run.

        An error is that of its own sequence only, and only if decoding without
        drafts would have met it.
        """


def make_verification(name: str, trunk: Trunk, drafters: Sequence[Drafter]) -> Verification:
    """The verification of that name.

    Args:
        name: "choice", or "rejection:" and one of `REJECTION_RULES`.
        trunk: whose logits are judged.
        drafters: whose drafts are judged. "point-mass" judges any guesses; the
            other rules divide by what guesses were drawn from, by one drafter.

    Raises:
        ConfigError: there is none of that name, or it cannot judge these drafts.
    """
    if name == "choice":
        return ChoiceVerification(trunk)
    names = [f"{_REJECTION}{rule}" for rule in REJECTION_RULES]
    if name not in names:
        raise ConfigError(f"verification = {name!r}: it must be one of {', '.join(('choice', *names))}.")
    if name == _POINT_MASS:
        return RejectionVerification(name, trunk)
    if len(drafters) > 1:
        raise ConfigError(
            f"verification = {name!r} judges the guesses of one drafter, and {len(drafters)} came "
            f"({', '.join(drafter.name for drafter in drafters)}). Give one that draws: a model with coupled = False."
        )
    draws: Draws = getattr(drafters[0], "draws", "nothing") if drafters else "nothing"
    if draws == "nothing":
        raise ConfigError(
            f"verification = {name!r} divides by the distributions that guesses were drawn from, and this drafter "
            f"draws none. Use {_POINT_MASS!r}, or a drafter that draws: a model with coupled = False."
        )
    if name in (f"{_REJECTION}chain", f"{_REJECTION}block") and draws == "trees":
        raise ConfigError(
            f"verification = {name!r} judges chains, and this drafter draws several guesses for one place. "
            f"Set its branches to 1, or use '{_REJECTION}without-replacement'."
        )
    return RejectionVerification(name, trunk)


class ChoiceVerification:
    """Keep what equals the trunk's own choices."""

    name = "choice"
    needs_whole_trees = False

    def __init__(self, trunk: Trunk) -> None:
        """Let `trunk` choose."""
        self._trunk = trunk

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The trunk's own."""
        return self._trunk.make_chooser(params, seed, prompt, end_tokens)

    def decide(self, passed: Pass) -> list[Decision]:
        """Choose at all wanted rows at once; only if that fails, row by row along each kept path."""
        asked = [choice for own in passed.choices for choice in own]
        if not asked:
            return [_NO_DECISION] * len(passed.rounds)
        try:
            chosen, logprobs = self._trunk.choose(asked)
        except Exception:
            return [self._decide_alone(*pair) for pair in zip(passed.rounds, passed.choices, strict=True)]
        decisions = []
        start = 0
        for round_, own in zip(passed.rounds, passed.choices, strict=True):
            end = start + len(own)
            decisions.append(_compare(round_, chosen[start:end], logprobs[start:end]) if own else _NO_DECISION)
            start = end
        return decisions

    def _decide_alone(self, round_: Round, own: Sequence[Choice]) -> Decision:
        """Choose one by one along the kept path, as plain decoding would.

        After a node's row has failed, its token is the last that is written: the text may end with it. If it does not,
        the next round begins with that row, and fails.
        """
        if not own:
            return _NO_DECISION
        chosen = _ChosenWhenReached(self._trunk, own)
        try:
            return _compare(round_, chosen, chosen.logprobs)
        except Exception as error:
            if chosen.last_row == 0:
                return Decision(error=error)
        *kept_nodes, last = path(round_.tree, chosen.last_row - 1)
        return _account(round_, Verdict(tuple(kept_nodes), round_.tree.tokens[last]), chosen.logprobs)


class _ChosenWhenReached:
    """Choices of one round, each made when verification comes to its row."""

    def __init__(self, trunk: Trunk, choices: Sequence[Choice]) -> None:
        self.logprobs: list[TokenLogprobs | None] = [None] * len(choices)
        self.last_row = 0
        self._trunk = trunk
        self._choices = choices

    def __len__(self) -> int:
        return len(self._choices)

    def __getitem__(self, row: int, /) -> int:
        self.last_row = row
        (token,), (self.logprobs[row],) = self._trunk.choose((self._choices[row],))
        return token


class RejectionVerification:
    """Keep a draft by a test against the trunk's distribution; see `decoding.rejection`.

    A tree is judged whole: a row that fails ends the text even where no draft that leads to it is kept.
    """

    def __init__(self, name: str, trunk: Trunk) -> None:
        """Judge by the rule of that name and `trunk`'s logits."""
        self.name = name
        self.needs_whole_trees = name != _POINT_MASS
        self._rule = REJECTION_RULES[name.removeprefix(_REJECTION)]
        self._trunk = trunk

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """The reference law and a source of chance for the sequence.

        Raises:
            UnsupportedError: log-probabilities are asked for.
        """
        if params.logprobs is not None:
            raise UnsupportedError(
                f"logprobs = {params.logprobs}: rejection rules report none. Leave it out, or use 'choice'."
            )
        law = ReferenceChooser(params, seed, prompt, end_tokens, self._trunk.vocab_size)
        return _RejectionChooser(law, GeneratorSource(np.random.default_rng(seed)))

    def decide(self, passed: Pass) -> list[Decision]:
        """Test each round's tree."""
        return [
            self._test(round_, own) if own else _NO_DECISION
            for round_, own in zip(passed.rounds, passed.choices, strict=True)
        ]

    def _test(self, round_: Round, own: Sequence[Choice]) -> Decision:
        chooser = own[0].chooser
        assert isinstance(chooser, _RejectionChooser)
        try:
            target_probs = np.stack(
                [chooser.law.probabilities(self._trunk.logits(choice.row), choice.path) for choice in own]
            )  # [len(tree) + 1, V]
            draft_probs = round_.tree.distributions
            if draft_probs is None:  # no guesses, or a rule that does not look
                draft_probs = np.zeros_like(target_probs)
            verdict = self._rule(round_.tree, target_probs, draft_probs, chooser.source)
        except Exception as error:
            return Decision(error=error)
        return _decision(round_, verdict, ())


@dataclass(frozen=True, slots=True)
class _RejectionChooser:
    law: ReferenceChooser
    source: GeneratorSource

    def extend(self, token_ids: Sequence[int]) -> None:
        self.law.extend(token_ids)


def _compare(round_: Round, chosen: Choices, logprobs: Sequence[TokenLogprobs | None]) -> Decision:
    return _account(round_, verify(round_.tree, chosen), logprobs)


def _account(round_: Round, verdict: Verdict, logprobs: Sequence[TokenLogprobs | None]) -> Decision:
    entries = (logprobs[0], *(logprobs[node + 1] for node in verdict.kept_nodes))
    return _decision(round_, verdict, tuple(entry for entry in entries if entry is not None))


def _decision(round_: Round, verdict: Verdict, logprobs: tuple[TokenLogprobs, ...]) -> Decision:
    kept_tokens = (round_.tree.tokens[node] for node in verdict.kept_nodes)
    return Decision(verdict.kept_nodes, (*kept_tokens, verdict.next_token), logprobs)
