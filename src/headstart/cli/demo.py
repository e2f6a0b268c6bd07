"""`headstart demo`: the same text twice, plainly and with drafts."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.flags import EngineFlags, ModelName
from headstart.errors import ConfigError

_ENGINE = EngineFlags()

# Pairs of runs; speeds are their medians.
REPEATS = 3

# A task whose answer takes up much of the prompt, as edits, summaries and quotations do: here a lookup helps. On
# a free invention it finds nothing and costs nothing.
PROMPT = """Rewrite the following text in a friendlier tone. Keep as many of its words as you can.

The lighthouse stands on a small island at the mouth of the river. It was built in 1867 by two brothers who had come \
from the north, and its lamp could be seen from eighteen miles away. Every evening the keeper climbed the hundred and \
twelve steps, trimmed the wick, and wrote the weather into a book. The book is still there. Visitors may turn its \
pages, but they are asked to leave their coats at the door, for the stairs are narrow and the rail is old."""


def demo(
    *,
    model: ModelName = "smollm2",
    max_tokens: Annotated[int, Parameter(help="Tokens to write at most.")] = 128,
    engine: EngineFlags = _ENGINE,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Write the same text plainly and with drafts, and compare them.

    Fails if the two differ in a single token. Speeds are medians of several runs, taken in turn. On a terminal, tokens
    that were drafted are green. The built-in task suits drafting: its answer repeats much of what was asked.
    """
    if max_tokens < 2:
        raise ConfigError(f"max_tokens = {max_tokens}: it must be at least 2, for speed is the time between tokens.")
    if engine.draft == "none":
        raise ConfigError("draft = 'none': then there is nothing to compare. Use lookup or auto.")

    # late: they bring numpy and the native module, which --help can do without
    from headstart.cli.comparison import compare
    from headstart.cli.opening import open_model
    from headstart.cli.results import machine_document, print_json

    opened = open_model(model, engine)
    if not json:
        print(f"{PROMPT}\n")
    comparison = compare(opened, PROMPT, max_tokens, REPEATS, stream=None if json else sys.stdout)
    if comparison is None:
        return status.INTERRUPTED
    if json:
        print_json({**comparison.document(), **machine_document(opened)})
    else:
        print(comparison.verdict())
    return None if comparison.identical else status.FAILURE
