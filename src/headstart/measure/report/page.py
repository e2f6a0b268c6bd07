"""A report as one page."""

from __future__ import annotations

from headstart.measure.report.document import Report


def render_page(report: Report) -> str:
    """All of the report."""
    return f"<!doctype html><title>{report.verdict.decision}</title>"
