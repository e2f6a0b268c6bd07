"""How long a training step takes, from a few that are timed and thrown away."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from headstart.train.pretrain.config import PretrainConfig
from paper.models import placed_in

if TYPE_CHECKING:
    from headstart.train.pretrain.batch import LabelledText
    from paper.workspace import Workspace

_STEPS = 3
# judging and measuring come on top
_JUDGING = 1.15

# rows, width and outputs of a product that is timed; what of its speed a whole step reaches
_PRODUCT = (1024, 256, 8192)
_SHARE_OF_PEAK = 0.4


class Stopwatch:
    """Times steps of models; models of one shape once.

    Attributes:
        budget: what is spent.
    """

    def __init__(self, workspace: Workspace) -> None:
        """Nothing is timed yet."""
        self._workspace = workspace
        self.budget = workspace.budget
        self._known: dict[str, float] = {}

    def step_s(self, corpus: str, config: PretrainConfig) -> float:
        """Seconds of a step, its share of validation and measuring included.

        Args:
            corpus: that is trained on.
            config: of the training.
        """
        shape = repr((corpus, config.model, config.heads.n, config.heads.kind, config.heads.equal_parameters,
                      config.heads.unrolled, config.data.window, config.train.batch_windows))  # fmt: skip
        if shape not in self._known:
            self._known[shape] = _JUDGING * _time_steps(self._workspace, corpus, config)
        return self._known[shape]

    @cached_property
    def products_per_s(self) -> float:
        """Multiplications and additions a second of a plain PyTorch step, which is not products alone."""
        return _time_products(self._workspace.threads)


def _time_products(threads: int) -> float:
    import torch

    torch.set_num_threads(threads)
    rows, width, outputs = _PRODUCT
    left, right = torch.rand(rows, width), torch.rand(width, outputs)
    left @ right  # the first one sets up
    started = time.perf_counter()
    for _ in range(_STEPS):
        left @ right
    return _SHARE_OF_PEAK * 2 * rows * width * outputs * _STEPS / (time.perf_counter() - started)


def _time_steps(workspace: Workspace, corpus: str, config: PretrainConfig) -> float:
    import torch

    from headstart.train.corpus import CorpusWindows
    from headstart.train.pretrain.batch import labelled_text
    from headstart.train.pretrain.blueprint import make_blueprint
    from headstart.train.pretrain.parts import make_model
    from headstart.train.pretrain.team import Team
    from headstart.train.pretrain.trainer import PretrainTrainer

    torch.set_num_threads(workspace.threads)
    text = workspace.corpus(corpus)
    placed = placed_in(workspace, corpus, config)
    train = placed.train
    windows = CorpusWindows(text.train, placed.data.window, train.batch_windows, train.seed)
    team = Team(train.device)
    model = team.place(make_model(make_blueprint(placed, text.vocab_size), train.seed))

    def batches(step: int) -> LabelledText:
        return labelled_text(windows.batch(step), team.device)

    return PretrainTrainer(model, train, placed.heads, train.max_steps, batches, team).time_steps(_STEPS)
