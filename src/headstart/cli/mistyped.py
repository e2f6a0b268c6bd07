"""Mistyped flags that would pass for a prompt.

`-` alone reads a prompt from stdin, and a prompt may begin with a dash ("- milk"),
so cyclopts is told to let dashes through. Then `headstart generate MODEL --jsn`
would write on from the text "--jsn"; this catches it.
"""

from __future__ import annotations

import re

from cyclopts import App
from cyclopts.argument import ArgumentCollection
from cyclopts.exceptions import UnknownOptionError

_LOOKS_LIKE_A_FLAG = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)


def refuse_mistyped_flags(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Look at what was taken for a positional argument; cyclopts calls it among its sources of flags.

    Args:
        app: the verb.
        commands: its name.
        arguments: what the command line said.

    Raises:
        UnknownOptionError: one looks like a flag. It names the nearest.
    """
    for argument in arguments:
        for token in argument.tokens:
            if token.keyword is None and _LOOKS_LIKE_A_FLAG.fullmatch(token.value):
                raise UnknownOptionError(token=token, argument_collection=arguments)
