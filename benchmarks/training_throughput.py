"""Tokens a second of `headstart train` beside plain next-token training of the same model, on the same text.

    python benchmarks/training_throughput.py --threads 2 --json

Sides take steps in turn on the same windows of a corpus as `headstart data` packs it, and a ratio is of one round, so
that a busy machine slows both. All have as many weights: with four tokens ahead the trunk gives up a block for each of
three heads. A whole step is timed: windows, loss, gradients, clipping, AdamW, and what is logged.

Four predictions read the unembedding four times. *Work* is what a token takes of multiplications by it, over next-token
training, and *per work* is the speed if that is taken out. The sides:

    n = 1               next-token training
    n = 4               three parallel heads beside the trunk's own
    n = 1, one document the same with each window taken as one document: what borders of documents cost
    plain               a loop in plain PyTorch, `benchmarks/plain_training.py`
    transformers        LlamaForCausalLM in the same loop, if that library is installed

Needs PyTorch. The text is Python's standard library; its vocabulary of 49152 tokens takes half a minute to make.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from headstart import __version__
from headstart.measure.machine import describe_machine
from headstart.train.corpus import Corpus, CorpusConfig, CorpusWindows, open_corpus, prepare_corpus
from headstart.train.pretrain.batch import LabelledText, labelled_text
from headstart.train.pretrain.blueprint import make_blueprint
from headstart.train.pretrain.config import DataConfig, Precision, PretrainConfig, TrainConfig
from headstart.train.pretrain.initial_weights import count_parameters
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads
from headstart.train.pretrain.parts import make_model
from headstart.train.pretrain.scale import scale_of
from headstart.train.pretrain.team import Team
from headstart.train.pretrain.trainer import PretrainTrainer
from plain_training import PlainLoop, PlainModel, TransformersModel

TARGET = 0.9
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
OURS, PLAIN = ("n = 1", "n = 4", "n = 1, one document"), ("plain", "transformers")
WARM_UP_STEPS = 2

app = cyclopts.App(name="training_throughput", help=__doc__, help_format="plaintext")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is trained.

    Attributes:
        name: of the table.
        tokenizer: of the corpus.
        model: its sizes, the heads' blocks among them.
        window: tokens of a window.
        batch_windows: windows of a step.
        steps: of a side's turn.
    """

    name: str
    tokenizer: str
    model: ModelConfig
    window: int
    batch_windows: int
    steps: int


SHAPES = (
    Shape(
        name="bytes",  # the tutorial's
        tokenizer="bytes",
        model=ModelConfig(hidden_size=128, num_layers=7, num_heads=4),
        window=256,
        batch_windows=16,
        steps=2,
    ),
    Shape(
        name="49k",
        tokenizer="bpe:49152",
        model=ModelConfig(hidden_size=384, num_layers=7, num_heads=6, tied=True),
        window=512,
        batch_windows=4,
        steps=1,
    ),
)

Step = Callable[[int], None]
"""Takes the step of a number, from 0."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A shape in a precision.

    Attributes:
        shape, precision: which.
        tokens_per_step: of every side.
        documents_per_window: parts of documents in a window, in mean.
        parameters: of each side.
        work: of a token of each side, over next-token training; see `headstart train --plan`.
        seconds: of a step, by side, round by round.
    """

    shape: str
    precision: Precision
    tokens_per_step: int
    documents_per_window: float
    parameters: dict[str, int]
    work: dict[str, float]
    seconds: dict[str, list[float]]

    def tokens_per_s(self, side: str) -> float:
        """In median over rounds."""
        return self.tokens_per_step / statistics.median(self.seconds[side])

    def ratios(self, side: str, other: str) -> list[float]:
        """Speed of a side over another's, round by round."""
        return [theirs / own for own, theirs in zip(self.seconds[side], self.seconds[other], strict=True)]

    @property
    def fastest_plain(self) -> str:
        """Of the loops without anything of this project."""
        return max((side for side in PLAIN if side in self.seconds), key=self.tokens_per_s)


@app.default
def compare(
    *,
    shapes: tuple[str, ...] = tuple(shape.name for shape in SHAPES),
    precisions: tuple[Precision, ...] = PRECISIONS,
    rounds: int = 9,
    threads: int = 0,
    corpora: Path | None = None,
    as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure all sides; with `--json`, the last line of stdout is one JSON document.

    Args:
        shapes: which of bytes and 49k.
        precisions: float32, bfloat16.
        rounds: turns of each side.
        threads: of the CPU; 0 for what PyTorch takes.
        corpora: a folder to keep the corpora in, or to find them; by default they are made and thrown away.
    """
    if threads:
        torch.set_num_threads(threads)
    console = Console(stderr=as_json, width=100)
    cells = []
    with tempfile.TemporaryDirectory() as scratch:
        for shape in (shape for shape in SHAPES if shape.name in shapes):
            corpus = _corpus(corpora or Path(scratch), shape.tokenizer)
            for precision in precisions:
                cells.append(measure(shape, corpus, precision, rounds))
                console.print(_table(cells[-1]))
    if as_json:
        print(json.dumps(_document(cells, rounds)))


def measure(shape: Shape, corpus: Corpus, precision: Precision, rounds: int) -> Cell:
    """All sides of a shape, in turn.

    Args:
        shape: what is trained.
        corpus: of its vocabulary.
        precision: of products.
        rounds: turns of each side.
    """
    windows = CorpusWindows(corpus.train, shape.window, shape.batch_windows, seed=0)
    sides: dict[str, tuple[Step, int]] = {}
    flops: dict[str, float] = {}
    for side, n in zip(OURS, (1, 4, 1), strict=True):
        config = _config(shape, corpus, precision, n)
        sides[side] = _ours(config, corpus, windows, one_document=side == OURS[2])
        flops[side] = scale_of(config).flops_per_token
    for side in PLAIN:
        if side == "plain" or find_spec(side) is not None:
            sides[side] = _plain(shape, corpus, precision, side, windows)
    for step in range(WARM_UP_STEPS):
        for take, _ in sides.values():
            take(step)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds):
        first = WARM_UP_STEPS + turn * shape.steps
        names = list(sides)
        for side in names[turn % len(names) :] + names[: turn % len(names)]:
            started = time.perf_counter()
            for step in range(first, first + shape.steps):
                sides[side][0](step)
            seconds[side].append((time.perf_counter() - started) / shape.steps)
    pieces = [
        int(windows.batch(step).documents[:, -1].sum()) + shape.batch_windows
        for step in range(WARM_UP_STEPS, WARM_UP_STEPS + rounds * shape.steps)
    ]
    return Cell(
        shape=shape.name,
        precision=precision,
        tokens_per_step=shape.window * shape.batch_windows,
        documents_per_window=statistics.mean(pieces) / shape.batch_windows,
        parameters={side: count for side, (_, count) in sides.items()},
        work={side: flops.get(side, flops[OURS[0]]) / flops[OURS[0]] for side in sides},
        seconds=seconds,
    )


def _config(shape: Shape, corpus: Corpus, precision: Precision, n: int) -> PretrainConfig:
    return PretrainConfig(
        model=shape.model,
        heads=PretrainHeads(n=n, equal_parameters=n > 1),
        data=DataConfig(path=str(corpus.path), window=shape.window),
        train=TrainConfig(device="cpu", precision=precision, batch_windows=shape.batch_windows),
    )


def _ours(config: PretrainConfig, corpus: Corpus, windows: CorpusWindows, *, one_document: bool) -> tuple[Step, int]:
    train, team = config.train, Team("cpu")
    model = team.place(make_model(make_blueprint(config, corpus.vocab_size), train.seed))

    def batches(step: int) -> LabelledText:
        packed = windows.batch(step)
        if one_document:
            whole = np.broadcast_to(np.arange(config.data.window, dtype=np.int32), packed.positions.shape)
            packed = replace(packed, documents=np.zeros_like(packed.documents), positions=whole)
        return labelled_text(packed, team.device)

    trainer = PretrainTrainer(model, train, config.heads, train.max_steps, batches, team)

    def take(step: int) -> None:
        assert trainer.step == step, "sides take the same steps"
        trainer.take_step()

    return take, count_parameters(model.parameters())


def _plain(shape: Shape, corpus: Corpus, precision: Precision, side: str, windows: CorpusWindows) -> tuple[Step, int]:
    usual = TrainConfig()
    torch.manual_seed(0)
    trunk = shape.model.trunk_config(corpus.vocab_size, shape.window, removed_layers=0)
    model = PlainModel(trunk) if side == "plain" else TransformersModel(trunk)
    loop = PlainLoop(
        model,
        learning_rate=usual.learning_rate,
        weight_decay=usual.weight_decay,
        max_norm=usual.max_gradient_norm,
        bfloat16=precision == "bfloat16",
    )

    def take(step: int) -> None:
        loop.step(torch.from_numpy(windows.batch(step).tokens.astype(np.int64)))

    return take, count_parameters(model.parameters())


def _corpus(folder: Path, tokenizer: str) -> Corpus:
    """Of the standard library; one that lies in the folder is taken as it is."""
    place = folder / tokenizer.replace(":", "-")
    if not place.exists():
        prepare_corpus(place, CorpusConfig(sources=("stdlib",), tokenizer=tokenizer))
    return open_corpus(place)


def _table(cell: Cell) -> Table:
    plain = cell.fastest_plain
    millions = cell.parameters[plain] / 1e6
    title = f"{cell.shape}, {cell.precision}: {millions:.1f} million parameters, {cell.tokens_per_step} tokens a step"
    table = Table(title=title)
    for name in ("side", "tokens/s", f"over {plain}", "quartiles", "work", "per work", ""):
        table.add_column(name, justify="left" if name in ("side", "") else "right")
    for side in cell.seconds:
        ratios = cell.ratios(side, plain)
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        verdict = "" if side not in OURS[:2] else "reached" if middle >= TARGET else "missed"
        work = cell.work[side]
        table.add_row(
            side, f"{cell.tokens_per_s(side):.0f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}",
            f"{work:.2f}", f"{middle * work:.3f}", verdict,
        )  # fmt: skip
    return table


def _document(cells: Sequence[Cell], rounds: int) -> dict[str, Any]:
    return {
        "headstart": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": describe_machine(),
        "rounds": rounds,
        "target": TARGET,
        "cells": [
            asdict(cell)
            | {
                "tokens_per_s": {side: cell.tokens_per_s(side) for side in cell.seconds},
                "fastest_plain": cell.fastest_plain,
                "over_fastest_plain": {
                    side: statistics.median(cell.ratios(side, cell.fastest_plain)) for side in cell.seconds
                },
            }
            for cell in cells
        ],
    }


if __name__ == "__main__":
    app()
