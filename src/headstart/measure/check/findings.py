"""What one test of a check came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.measure.check.faults import Fault
from headstart.measure.openai_reply import Guesses

Outcome = Literal["passed", "failed", "not tested"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One test and its figures.

    Attributes:
        test: its name.
        figures: what was measured, as plain data.
        faults: what it found wrong.
        untested: why nothing could be tested, if so.
        guesses: what the server drafted meanwhile, if it tells, and if the test is to show what drafting does.
    """

    test: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    untested: str | None = None
    guesses: Guesses | None = None

    @property
    def outcome(self) -> Outcome:
        """In a word."""
        if self.faults:
            return "failed"
        return "passed" if self.untested is None else "not tested"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "test": self.test,
            "outcome": self.outcome,
            "untested": self.untested,
            "faults": [fault.to_json() for fault in self.faults],
            "figures": dict(self.figures),
            "guesses": None
            if self.guesses is None
            else {"drafted": self.guesses.drafted, "accepted": self.guesses.accepted},
        }
