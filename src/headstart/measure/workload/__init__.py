"""What is asked of a model that is measured: prompts by category, texts of a given length, and when requests come."""

from headstart.measure.workload.arrivals import ClosedLoop, Feed, Load, OpenLoop
from headstart.measure.workload.context import Filler, fill
from headstart.measure.workload.prompts import Ask, Prompt, take_evenly
from headstart.measure.workload.reading import read_prompts, shipped_prompts

__all__ = [
    "Ask",
    "ClosedLoop",
    "Feed",
    "Filler",
    "Load",
    "OpenLoop",
    "Prompt",
    "fill",
    "read_prompts",
    "shipped_prompts",
    "take_evenly",
]
