"""What a run of the bench comes to: figures, a verdict, and three ways to show them."""

from headstart.measure.report.document import Report, make_report, write_report
from headstart.measure.report.spread import Spread

__all__ = ["Report", "Spread", "make_report", "write_report"]
