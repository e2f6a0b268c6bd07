"""`headstart inspect`: what a checkpoint holds, and who can use it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from headstart.cli.settings import SettingsFile


def inspect(
    model: Annotated[
        str,
        Parameter(
            help="A folder (config.json and an index are enough), a .gguf or .safetensors file or its beginning, a "
            "name on the hub, or smollm2 for the packaged model."
        ),
    ],
    /,
    *,
    revision: Annotated[str | None, Parameter(help="Branch, tag or commit of a name on the hub.")] = None,
    config: SettingsFile = None,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Tell what a checkpoint holds: heads that its settings promise, heads that are there, and engines that use them.

    Reads settings and headers, not weights; of a model on the hub nothing else is fetched. The exit status is 0 whether
    or not there are heads.
    """
    # late: they bring numpy, which --help can do without
    from headstart.cli.inspect_text import print_report
    from headstart.cli.opening import model_source
    from headstart.cli.results import print_json
    from headstart.measure.inspect import inspect_checkpoint

    report = inspect_checkpoint(model_source(model), revision=revision)
    if json:
        print_json(report.to_json())
    else:
        print_report(report)
    return None
