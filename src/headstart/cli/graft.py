"""`headstart graft`: heads for a model that is finished."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.flags import ModelName
from headstart.cli.graft_flags import GraftFlags, read_prompt_files
from headstart.cli.graft_joint_flags import JointFlags
from headstart.cli.torch_needed import require_torch
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.train.graft import GraftResult
    from headstart.train.phases import Progress
    from headstart.train.prompts import PromptSource

_FLAGS, _JOINT_FLAGS = GraftFlags(), JointFlags()

_LABELS = {"writing": "Writing text", "reading": "Reading it  ", "training": "Training    ", "joint": "Both at once"}


def graft(
    model: ModelName,
    /,
    *,
    kind: Annotated[
        str,
        Parameter(
            help="Of heads: sequential (one module, unrolled), eagle, eagle3 (reads three layers), medusa or parallel "
            "(a module for each depth)."
        ),
    ],
    out: Annotated[Path, Parameter(help="The run's folder; one that holds an unfinished run is gone on with.")],
    prompts: Annotated[
        tuple[str, ...],
        Parameter(
            help="FILE or FILE:SHARE with what the model is asked; may be given several times. `openings` are those "
            "that ship, from which the model makes questions of its own; they are the default. Shares of 4 and 1 give "
            "four of the first for each of the second."
        ),
    ] = (),
    text_of: Annotated[
        Path | None, Parameter(help="Take the text of another run's folder, instead of having one written.")
    ] = None,
    from_heads: Annotated[
        Path | None,
        Parameter(
            help="A heads file whose heads are trained further, such as those of the model before it was fine-tuned."
        ),
    ] = None,
    flags: GraftFlags = _FLAGS,
    joint_flags: JointFlags = _JOINT_FLAGS,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Train heads for a finished model, which stays as it is unless --joint is given.

    The model writes a text, its layers are read along it, and heads learn from that to guess ahead. They are measured
    with the real engine on the way, and the best are kept. Ctrl-C stops at a place from which the same command goes on.
    Needs PyTorch.
    """
    config = flags.to_config(kind)
    joint = joint_flags.to_config(config)
    if text_of is not None and (prompts or config.text_tokens is not None):
        raise ConfigError(
            "--text-of takes a text as it is; --prompts and --text-tokens have no effect. Leave them out."
        )
    require_torch("Heads are trained")

    # late: they bring numpy, the native module and torch, which --help can do without
    from headstart.checkpoint import open_checkpoint
    from headstart.cli.interrupt import Interrupt
    from headstart.cli.opening import model_source
    from headstart.cli.phases import PhaseProgress
    from headstart.cli.results import print_json
    from headstart.train.graft import graft as run_graft
    from headstart.train.joint import graft_jointly

    source = model_source(model)
    has_template = open_checkpoint(source).tokenizer().chat_template is not None
    text: PromptSource | Path = text_of or read_prompt_files(prompts, raw_openings=not has_template)
    try:
        with Interrupt() as interrupt, PhaseProgress() as bars:

            def show(progress: Progress) -> None:
                bars.show(_LABELS[progress.phase], progress.done, progress.total, progress.note)

            def should_stop() -> bool:
                return interrupt.asked

            result: GraftResult | None
            if joint is None:
                result = run_graft(source, out, config, text, from_heads=from_heads, show=show, should_stop=should_stop)
            else:
                result = graft_jointly(
                    source, out, joint, text, from_heads=from_heads, show=show, should_stop=should_stop
                )
    except KeyboardInterrupt:  # pressed twice: what is saved is some minutes old
        result = None
    if result is None:
        print(f"Stopped; the same command goes on from here, with what is in {out}.", file=sys.stderr, flush=True)
        return status.INTERRUPTED
    if json:
        print_json(_document(model, kind, result))
    else:
        print(_account(model, kind, result))
    return None


def _document(model: str, kind: str, result: GraftResult) -> dict[str, object]:
    document: dict[str, object] = {"model": model, "kind": kind}
    for field in fields(result):
        value = getattr(result, field.name)
        if field.name == "measured":
            document |= value.to_json()
        elif field.name == "alone":
            document["alone"] = value.to_json()
        else:
            document[field.name] = str(value) if isinstance(value, Path) else value
    return document


def _account(model: str, kind: str, result: GraftResult) -> str:
    from headstart.cli.phases import spoken_time
    from headstart.train.joint import JointResult

    measured = result.measured
    lines = [
        f"{kind} heads after step {result.step} of {result.num_steps}, from {result.text_tokens} tokens of text, in "
        f"{spoken_time(result.spent_s)}: {result.heads}",
        f"{measured.tau:.2f} tokens a round on prompts that were held out; kept so far: {_shares(measured.survival)}",
    ]
    if isinstance(result, JointResult):
        model = str(result.model_folder)
        lines.append(
            f"The model that they are for is a new one, {result.drift:.4f} nats a token from what it was, and writes "
            f"other words: {model}. Heads for the model as it was reach {result.alone.tau:.2f}."
        )
    lines.append(
        f"Use them: headstart generate {shlex.quote(model)} PROMPT --draft {shlex.quote(f'heads:{result.heads}')}"
    )
    return "\n".join(lines)


def _shares(survival: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.0f} % at depth {depth}" for depth, share in enumerate(survival, start=1))
