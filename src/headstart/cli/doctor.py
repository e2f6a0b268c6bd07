"""`headstart doctor`: why heads are accepted less often than they should be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.flags import ModelName
from headstart.cli.settings import SettingsFile
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.checkpoint import Checkpoint
    from headstart.measure.doctor import Report

_HEADS = "heads"


def doctor(
    model: ModelName,
    /,
    *,
    draft: Annotated[
        str, Parameter(help="heads:FILE, or heads for those that lie beside the model or ship with this program.")
    ] = _HEADS,
    tokens: Annotated[int, Parameter(help="Tokens that the model writes to judge by; more find smaller faults.")] = 384,
    frame: Annotated[
        str | None,
        Parameter(
            help="How the model is asked, with {} for the question and \\n for a new line; by default by its own chat "
            "template."
        ),
    ] = None,
    threads: Annotated[
        int | None, Parameter(help="CPU threads; by default as many as the process may use at once.")
    ] = None,
    config: SettingsFile = None,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Find out why heads guess wrong more often than they should.

    The model writes a few hundred tokens. Then the usual mistakes are undone one at a time: layers off by one, halves
    joined in the wrong order, norms without their one, states before or after the norm, a wrong vocabulary, tokens
    beside the wrong state, another chat template. What helps is told, with what to change. Nothing is written. Exit
    status 1 if a mistake was found, or heads are far below what their file says for no usual reason.
    """
    # late: they bring numpy and the native module, which --help can do without
    from headstart.checkpoint import open_checkpoint
    from headstart.cli.opening import model_source
    from headstart.cli.progress import progress_bar
    from headstart.cli.results import print_json
    from headstart.measure.doctor import examine

    _check_draft(draft)
    asked = None if frame is None else frame.replace("\\n", "\n")  # in quotes a shell leaves both characters
    checkpoint = open_checkpoint(model_source(model))
    path = _heads_path(draft, checkpoint)
    with progress_bar(f"Examining {path.name}") as show:
        report = examine(checkpoint, path, num_tokens=tokens, threads=threads, frame=asked, show=show)
    if json:
        print_json({"model": model, "heads": str(path), **report.to_json()})
    else:
        print("\n".join(_account(path, report)))
    return None if report.verdict == "healthy" else status.FAILURE


def _check_draft(draft: str) -> None:
    kind, colon, name = draft.partition(":")
    if kind != _HEADS or (colon and not name):
        raise ConfigError(f"draft = {draft!r}: only heads can be examined. Give heads:FILE, or heads.")


def _heads_path(draft: str, checkpoint: Checkpoint) -> Path:
    """The file to examine. It is not opened here, since it may be one that is refused."""
    from headstart.runtime.open_heads import find_heads, heads_place

    name = draft.partition(":")[2]
    if name:
        return Path(name)
    beside = heads_place(checkpoint)
    if beside.is_file():
        return beside
    found = find_heads(checkpoint)
    if found is None:
        raise ConfigError(f"There are no heads for this model, neither {beside} nor any that ship. Give heads:FILE.")
    return found.file.path


def _account(path: Path, report: Report) -> list[str]:
    diagnosis = report.diagnosis
    lines = [f"{path}: of {diagnosis.num_places} guesses, {_shares(diagnosis.right)} are right."]
    if report.expected:
        lines.append(
            f"The file says that {report.expected[0]:.0%} were kept at depth 1 when it was measured, second guesses "
            "among them."
        )
    if diagnosis.left_out > 0:
        lines.append(f"The draft vocabulary leaves out {diagnosis.left_out:.1%} of what the model writes.")
    lines += ["", "undone                  right at depth 1, 2   gain in nats       z"]
    for trial in sorted(diagnosis.trials, key=lambda trial: -trial.gain_nats):
        mark = "  <- helps" if trial.helps else ""
        right = "  ".join(f"{share:.3f}" for share in trial.right)
        lines.append(f"{trial.name:22}  {right:>19}  {trial.gain_nats:13.3f}  {trial.z:6.1f}{mark}")
    lines.append("")
    if report.found is not None:
        lines += [report.found.mistake, f"Undone, {_shares(report.found.right)} are right. {report.found.change}"]
    elif report.verdict == "unexplained":
        lines.append(
            "This is far below what the file says, and none of the usual mistakes is why. Is the text unlike that of "
            "the training, or was the model fine-tuned since? headstart graft trains on."
        )
    else:
        lines.append("Healthy: none of the usual mistakes, undone, makes guesses better.")
    return [*lines, *(f"note: {note}" for note in report.notes)]


def _shares(right: tuple[float, ...]) -> str:
    return ", ".join(f"{share:.1%} at depth {depth}" for depth, share in enumerate(right, start=1))
