"""Engines made wrong on purpose, so that a check of exactness can be shown to reject them.

Each takes pytest's `monkeypatch` and is undone with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headstart.engine import passes, verification
from headstart.records import Tree, Verdict

if TYPE_CHECKING:
    import pytest

    from headstart.engine.scheduler import Round


def first_guess_is_always_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess is believed without a look at what the trunk chose."""

    def mutant(tree: Tree, choices: Sequence[int]) -> Verdict:
        return Verdict((0,), choices[1]) if tree.tokens else Verdict((), choices[0])

    monkeypatch.setattr(verification, "verify", mutant)


def noise_is_that_of_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses are drawn with the noise of the position where their round began."""
    original = passes.build_pass

    def mutant(rounds: Sequence[Round]) -> passes.Pass:
        passed = original(rounds)
        choices = [[replace(choice, position=own[0].position) for choice in own] for own in passed.choices]
        return replace(passed, choices=choices)

    monkeypatch.setattr("headstart.engine.engine.build_pass", mutant)
