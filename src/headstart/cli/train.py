"""`headstart train`: a model that predicts several tokens at every position, from scratch or on from a checkpoint."""

from __future__ import annotations

import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.torch_needed import require_torch
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.train.phases import Progress
    from headstart.train.pretrain.config import PretrainConfig
    from headstart.train.pretrain.run import PretrainResult

# below this share of distinct runs, a model's greedy text flatters its heads
_REPETITIVE = 0.7

_LABELS = {"preparing": "Preparing text", "training": "Training      "}


def train(
    run: Annotated[Path, Parameter(help="TOML file of the run: tables model, heads, data and train.")],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(help="The folder of the model and its run; one that holds an unfinished run is gone on with."),
    ] = None,
    steps: Annotated[int | None, Parameter(help="Steps of the optimiser, over what the file says.")] = None,
    minutes: Annotated[
        float | None,
        Parameter(help="Time for training, counted over all the times that the command is run; as many steps as fit."),
    ] = None,
    seed: Annotated[int | None, Parameter(help="Of everything random.")] = None,
    device: Annotated[str | None, Parameter(help="cpu, cuda, or auto for cuda if there is one.")] = None,
    threads: Annotated[int | None, Parameter(help="CPU threads; by default as many as the process may use.")] = None,
    changes: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set", help="TABLE.KEY=VALUE over what the file says, such as heads.n=2; may be given several times."
        ),
    ] = (),
    plan: Annotated[
        bool,
        Parameter(
            help="Train nothing: print parameters, operations and memory by head. Needs neither --out nor PyTorch."
        ),
    ] = False,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Train a model with heads that predict further tokens, or without.

    What comes out is a folder that generate and chat take as it is, with its heads beside it, which may be deleted.
    Ctrl-C stops at a place from which the same command goes on; so does a kill, from some seconds before. Started by
    torchrun, it trains on many devices. Needs PyTorch.
    """
    # late: it brings numpy, which --help can do without
    from headstart.train.pretrain.config_file import read_pretrain_config

    named = {"steps": steps, "minutes": minutes, "seed": seed, "device": device, "threads": threads}
    all_changes = [*changes, *(f"train.{name}={value}" for name, value in named.items() if value is not None)]
    settings = read_pretrain_config(run, all_changes)
    if plan:
        _print_plan(settings, json)
        return None
    if out is None:
        raise ConfigError("--out is missing: name the folder that the model is to lie in.")
    require_torch("Models are trained")
    from headstart.train.pretrain.team import rank_and_size

    result = _run(settings, out)
    if rank_and_size()[0]:  # of several processes, the first speaks
        return None
    if result is None:
        print(f"Stopped; the same command goes on from here, with what is in {out}.", file=sys.stderr, flush=True)
        return status.INTERRUPTED
    if json:
        from headstart.cli.results import print_json

        print_json(_document(result))
    else:
        print(_account(result))
    return None


def _print_plan(settings: PretrainConfig, json: bool) -> None:
    from headstart.cli.results import print_json
    from headstart.cli.train_plan import spoken_plan
    from headstart.train.pretrain.scale import scale_of

    scale = scale_of(settings)
    if json:
        print_json(scale.to_json())
    else:
        print(spoken_plan(scale))


def _run(settings: PretrainConfig, out: Path) -> PretrainResult | None:
    from headstart.cli.interrupt import Interrupt
    from headstart.cli.phases import PhaseProgress
    from headstart.train.pretrain.run import pretrain

    try:
        with Interrupt() as interrupt, PhaseProgress() as bars:

            def show(progress: Progress) -> None:
                bars.show(_LABELS[progress.phase], progress.done, progress.total, progress.note)

            return pretrain(settings, out, show=show, should_stop=lambda: interrupt.asked)
    except KeyboardInterrupt:  # pressed twice: what is saved is some seconds old
        return None


def _document(result: PretrainResult) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if field.name == "measured":
            document["measured"] = None if value is None else value.to_json()
        else:
            document[field.name] = str(value) if isinstance(value, Path) else value
    return document


def _account(result: PretrainResult) -> str:
    from headstart.cli.phases import spoken_time
    from headstart.train.means import spoken

    losses = ", ".join(spoken(loss, 3) for loss in result.losses)
    skipped = f", {result.num_skipped} of them skipped by the guard" if result.num_skipped else ""
    lines = [
        f"{result.num_parameters / 1e6:.1f} million parameters, {result.num_steps} steps{skipped}, "
        f"{result.num_tokens / 1e6:.1f} million tokens in {spoken_time(result.spent_s)}: {result.model}",
        f"Held-out text: {result.bits_per_byte:.3f} bits a byte; loss by head {losses}",
    ]
    if result.measured is not None:
        greedy, drawn = result.measured.greedy, result.measured.drawn
        kept = ", ".join(f"{100 * share:.0f} %" for share in greedy.survival)
        lines.append(
            f"{greedy.tau:.2f} tokens a round on held-out prompts, {drawn.tau:.2f} at temperature 1; kept by depth, "
            f"greedily: {kept}"
        )
        repeats = result.measured.distinct_8gram_share
        if repeats is not None and repeats < _REPETITIVE:
            lines.append(
                f"The model still repeats itself (of its runs of 8 tokens {100 * repeats:.0f} % are distinct), which "
                "is easy to guess: the figure at temperature 1 says more."
            )
    draft = " --draft heads" if result.heads is not None else ""
    lines.append(f"Use it: headstart generate {shlex.quote(str(result.model))} PROMPT{draft}")
    return "\n".join(lines)
