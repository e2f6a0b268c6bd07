"""Metrics to other programs, beside the file that is always written.

A run that is taken up again goes on in the same place there. What those programs print goes to stderr: stdout is for
results.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib import import_module
from typing import Any

from headstart.errors import UnsupportedError
from headstart.train.run_directory import RunDirectory

Send = Callable[[dict[str, float], int], None]

_PROJECT = "headstart"
_IDENTITY = "tracked_as"


@contextmanager
def open_trackers(names: Sequence[str], run: RunDirectory, settings: Mapping[str, Any]) -> Iterator[list[Send]]:
    """What figures are sent to, each a function of figures by name and a step; they are closed at the end.

    Args:
        names: "tensorboard", "trackio", "wandb".
        run: the folder of the run; its parent names it.
        settings: of the run, plain data.

    Raises:
        UnsupportedError: one is not installed, or will not begin.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(_OPEN[name](name, run, settings)) for name in names]


def flat(entry: Mapping[str, Any], kind: str) -> dict[str, float]:
    """The numbers of a line of metrics, lists and tables spread out: {"step/losses/0": 2.3, ...}."""
    figures: dict[str, float] = {}
    for name, value in entry.items():
        if isinstance(value, (list, tuple)):
            value = {str(index): number for index, number in enumerate(value)}
        if isinstance(value, Mapping):
            figures |= flat(value, f"{kind}/{name}")
        elif isinstance(value, (int, float)):
            figures[f"{kind}/{name}"] = float(value)
    return figures


@contextmanager
def _tensorboard(name: str, run: RunDirectory, settings: Mapping[str, Any]) -> Iterator[Send]:
    """A file of events in the run's folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise _missing(name) from None
    with ExitStack() as stack:
        writers: list[Any] = []

        def send(figures: dict[str, float], step: int) -> None:
            if not writers:
                # what was sent of this step and of later ones before a kill is taken again
                writers.append(stack.enter_context(SummaryWriter(str(run.path / name), purge_step=step)))
            for figure, value in figures.items():
                writers[0].add_scalar(figure, value, step)

        yield send


@contextmanager
def _wandb(name: str, run: RunDirectory, settings: Mapping[str, Any]) -> Iterator[Send]:
    """It refuses steps that it has had, which are taken again with the same figures."""
    module = _imported(name)
    identity = _identity(run)
    with _beginning(name, "Log in (wandb login), or keep the figures here (WANDB_MODE=offline)"):
        opened = module.init(
            project=_PROJECT,
            name=run.path.parent.name,
            id=identity,
            resume="allow",
            config=dict(settings),
            dir=str(run.path),
            settings=module.Settings(console="off"),
        )
    try:
        yield lambda figures, step: opened.log(figures, step=step)
    finally:
        opened.finish()


@contextmanager
def _trackio(name: str, run: RunDirectory, settings: Mapping[str, Any]) -> Iterator[Send]:
    """It knows runs by name alone, so the name is one that no other run has."""
    module = _imported(name)
    with redirect_stdout(sys.stderr), _beginning(name, "See that its folder can be written"):
        module.init(
            project=_PROJECT,
            name=f"{run.path.parent.name}-{_identity(run)}",
            resume="allow",
            config=dict(settings),
            embed=False,
        )
    try:
        yield lambda figures, step: module.log(figures, step=step)
    finally:
        with redirect_stdout(sys.stderr):
            module.finish()


def _identity(run: RunDirectory) -> str:
    """What tells this run from others, however often it is taken up."""
    known = run.recall(_IDENTITY)
    if known is None:
        known = uuid.uuid4().hex[:8]
        run.remember(_IDENTITY, known)
    return str(known)


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise _missing(name) from None


@contextmanager
def _beginning(name: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the library's own, of many kinds
        raise UnsupportedError(
            f"train.track names {name}, which does not begin ({type(error).__name__}: {error}). {remedy}, or leave it "
            "out: metrics.jsonl is written in any case."
        ) from error


def _missing(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"train.track names {name}, which is not installed. Install it (pip install {name}), or leave it out: "
        "metrics.jsonl is written in any case."
    )


_OPEN = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb}
