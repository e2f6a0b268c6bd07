"""A run's folder as processes see it that do not lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from headstart.train.run_directory import RunDirectory


class FollowedRun(RunDirectory):
    """Reads what the leading process has written, and writes nothing."""

    def _take_hold(self) -> None:
        """The leading process has."""

    def _begin(self, config: Mapping[str, Any]) -> None:
        """The leading process has."""

    def remember(self, name: str, value: Any) -> None:
        """The leading process remembers."""

    def log(self, **entry: Any) -> None:
        """The leading process logs."""

    def forget_after(self, step: int) -> None:
        """The leading process forgets."""

    def save(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """The leading process saves."""

    def _end_last_line(self) -> None:
        """The leading process has."""
