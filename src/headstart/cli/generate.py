"""`headstart generate`: write on from one prompt."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.flags import EngineFlags, ModelName, SamplingFlags
from headstart.cli.lines import read_text
from headstart.errors import ConfigError

_ENGINE = EngineFlags()
_SAMPLING = SamplingFlags()


def generate(
    model: ModelName,
    prompt: Annotated[str, Parameter(help="The text to go on from; - reads it from stdin.", allow_leading_hyphen=True)],
    /,
    *,
    chat: Annotated[bool, Parameter(help="Take the prompt as a message, and write the model's answer.")] = False,
    system: Annotated[str | None, Parameter(help="With --chat: the instruction before the message.")] = None,
    sampling: SamplingFlags = _SAMPLING,
    engine: EngineFlags = _ENGINE,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Write on from a prompt.

    The text goes to stdout as it becomes final, an account of it to stderr. On a terminal, tokens that were drafted
    are green. Ctrl-C ends the text early.
    """
    params = sampling.to_params()
    if system is not None and not chat:
        raise ConfigError("--system has no effect without --chat. Add --chat, or put the instruction into the prompt.")
    text = read_text() if prompt == "-" else prompt

    # late: they bring numpy and the native module, which --help can do without
    from headstart.cli.opening import open_model
    from headstart.cli.results import completion_document, print_json, print_summary
    from headstart.cli.writing import write_answer

    opened = open_model(model, engine)
    writing_engine = opened.make_engine()
    messages = ([] if system is None else [{"role": "system", "content": system}]) + [{"role": "user", "content": text}]
    tokens = writing_engine.encode_chat(messages) if chat else writing_engine.tokenizer.encode(text)
    completion = write_answer(writing_engine, tokens, params, stream=None if json else sys.stdout)
    if json:
        print_json(completion_document(completion, params, opened))
    else:
        print_summary(completion, params)
    return status.INTERRUPTED if completion.finish_reason == "cancelled" else None
