"""Metrics to other programs, beside the file that is always written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import UnsupportedError

Send = Callable[[dict[str, float], int], None]


def open_trackers(names: Sequence[str], run: Path, settings: Mapping[str, Any]) -> list[Send]:
    """What figures are sent to, each a function of figures by name and a step.

    Args:
        names: "tensorboard", "trackio", "wandb".
        run: the folder of the run; its parent names it.
        settings: of the run, plain data.

    Raises:
        UnsupportedError: one is not installed.
    """
    return [_OPEN[name](run, settings) for name in names]


def flat(entry: Mapping[str, Any], kind: str) -> dict[str, float]:
    """The numbers of a line of metrics, lists spread out: {"step/losses/0": 2.3, ...}."""
    figures: dict[str, float] = {}
    for name, value in entry.items():
        values = value if isinstance(value, list) else [value]
        for index, number in enumerate(values):
            if isinstance(number, (int, float)):
                figures[f"{kind}/{name}/{index}" if isinstance(value, list) else f"{kind}/{name}"] = float(number)
    return figures


def _tensorboard(run: Path, settings: Mapping[str, Any]) -> Send:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise _missing("tensorboard") from None
    writer = SummaryWriter(str(run / "tensorboard"))

    def send(figures: dict[str, float], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)

    return send


def _logged_with(name: str) -> Callable[[Path, Mapping[str, Any]], Send]:
    """For trackio, which has wandb's interface."""

    def open_tracker(run: Path, settings: Mapping[str, Any]) -> Send:
        from importlib import import_module

        try:
            module = import_module(name)
        except ImportError:
            raise _missing(name) from None
        module.init(project="headstart", name=run.parent.name, config=dict(settings))
        return lambda figures, step: module.log(figures, step=step)

    return open_tracker


def _missing(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"train.track names {name}, which is not installed. Install it (pip install {name}), or leave it out: "
        "metrics.jsonl is written in any case."
    )


_OPEN: dict[str, Callable[[Path, Mapping[str, Any]], Send]] = {
    "tensorboard": _tensorboard,
    "trackio": _logged_with("trackio"),
    "wandb": _logged_with("wandb"),
}
