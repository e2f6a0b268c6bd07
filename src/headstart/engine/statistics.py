"""What an engine has done since it began."""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.decoding.statistics import AcceptanceStatistics


@dataclass(slots=True)
class EngineStatistics:
    """Counts over an engine's life.

    Attributes:
        acceptance: rounds and drafts of the sequences that have ended.
        passes: trunk passes.
        rows: rows in them.
        drafted_rows: of these, rows of drafted nodes.
        shared_tokens: prompt tokens that were met in the prefix index and not run.
        preemptions: times a sequence lost its pages to an older one.
        drafter_faults: times the drafter raised; each sequence concerned went on plainly.
        trunk_s: seconds inside the trunk.
        draft_s: seconds inside the drafter when it was asked for guesses.
        step_s: seconds of all steps; less `trunk_s` and `draft_s`, the engine's own share.
    """

    acceptance: AcceptanceStatistics = field(default_factory=AcceptanceStatistics)
    passes: int = 0
    rows: int = 0
    drafted_rows: int = 0
    shared_tokens: int = 0
    preemptions: int = 0
    drafter_faults: int = 0
    trunk_s: float = 0.0
    draft_s: float = 0.0
    step_s: float = 0.0

    def record_pass(self, num_rows: int, num_drafted: int, seconds: float) -> None:
        """Count a trunk pass.

        Args:
            num_rows: its rows.
            num_drafted: of these, rows of drafted nodes.
            seconds: inside the trunk.
        """
        self.passes += 1
        self.rows += num_rows
        self.drafted_rows += num_drafted
        self.trunk_s += seconds
