"""Numbers for people."""

from __future__ import annotations


def significant(value: float) -> str:
    """Three digits, or all that stand before the point if these are more."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
