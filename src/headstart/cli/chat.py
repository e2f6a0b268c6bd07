"""`headstart chat`: a conversation, turn by turn."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from headstart.cli.flags import EngineFlags, ModelName, SamplingFlags

_ENGINE = EngineFlags()
_SAMPLING = SamplingFlags()


def chat(
    model: ModelName,
    /,
    *,
    system: Annotated[str | None, Parameter(help="The instruction before the conversation.")] = None,
    sampling: SamplingFlags = _SAMPLING,
    engine: EngineFlags = _ENGINE,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document a turn.")] = False,
) -> None:
    """Talk with a model.

    Each line is a message. Ctrl-C ends an answer early; what was written stays in the conversation. Ctrl-D or /quit
    leaves, /reset begins anew, /stats tells how the drafts fared. Messages may also come through a pipe. A model
    without a chat template takes them for the beginning of a text, and goes on with it.
    """
    params = sampling.to_params()

    # late: they bring numpy and the native module, which --help can do without
    from headstart.cli.conversation import Conversation
    from headstart.cli.lines import read_lines
    from headstart.cli.opening import open_model

    opened = open_model(model, engine)
    conversation = Conversation(opened, params, system=system, json=json)
    for line in read_lines("> "):
        if not conversation.take(line):
            break
