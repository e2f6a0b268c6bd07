"""What a checkpoint holds, and which engines can draft with it: read from settings and headers, no weights loaded.

`families` and `engines` are tables, one entry a family and an engine; `layouts`
says by which tensor names heads are known. The rest compares: what the settings
promise (`promises`) with what the tensors are (`modules`), and both with what
engines implement (`judgement`).
"""

from headstart.measure.inspect.describe import describe
from headstart.measure.inspect.report import Report, inspect_checkpoint

__all__ = ["Report", "describe", "inspect_checkpoint"]
