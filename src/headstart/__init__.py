"""Exact multi-token decoding of language models on the CPU.

Example:
    >>> from headstart import Engine, SamplingParams
    >>> with Engine.load("model.gguf") as engine:
    ...     print(engine.generate("Once upon a time", SamplingParams(max_tokens=64)).text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headstart import errors
    from headstart.engine import Engine
    from headstart.errors import CapacityError, CheckpointError, ConfigError, HeadstartError, UnsupportedError
    from headstart.records import Completion, Event, SamplingParams

__version__ = "0.1.0"

__all__ = [
    "CapacityError",
    "CheckpointError",
    "Completion",
    "ConfigError",
    "Engine",
    "Event",
    "HeadstartError",
    "SamplingParams",
    "UnsupportedError",
    "__version__",
    "errors",
]

_MODULES = {
    "Engine": "headstart.engine",
    "SamplingParams": "headstart.records",
    "Completion": "headstart.records",
    "Event": "headstart.records",
    "HeadstartError": "headstart.errors",
    "ConfigError": "headstart.errors",
    "CheckpointError": "headstart.errors",
    "UnsupportedError": "headstart.errors",
    "CapacityError": "headstart.errors",
}


def __getattr__(name: str) -> object:
    # late (PEP 562), so that `headstart --help` need not wait for numpy
    if name == "errors":
        return import_module("headstart.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
