"""What a model makes of text that it does not learn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headstart.train.pretrain.batch import LabelledText, count_rows, labels
from headstart.train.pretrain.model import PretrainModel
from headstart.train.pretrain.trainer import HeadMetrics, PretrainTrainer, head_metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Figures of held-out windows.

    Attributes:
        bits_per_byte: of the trunk: nats of all targets, in bits, over the bytes that these stand for. It can be
            compared between vocabularies.
        heads: the trunk first, then all depths.
    """

    bits_per_byte: float
    heads: tuple[HeadMetrics, ...]

    def to_json(self) -> dict[str, Any]:
        """As a part of a line of the metrics file."""
        return {
            "bits_per_byte": self.bits_per_byte,
            "losses": [head.loss for head in self.heads],
            "correct": [head.correct for head in self.heads],
        }


@torch.no_grad()
def validate(trainer: PretrainTrainer, batches: Sequence[LabelledText], token_bytes: Tensor) -> Validation:
    """Judge the weights that would be written.

    Args:
        trainer: of the model.
        batches: held-out windows, the same ones each time.
        token_bytes: int64 [vocab_size], bytes that each token stands for.
    """
    model = trainer.model
    depth = 0 if model.heads_config is None else model.heads_config.depth
    losses, correct = torch.zeros(1 + depth, dtype=torch.float64), torch.zeros(1 + depth, dtype=torch.int64)
    counts, num_bytes = [0] * (1 + depth), 0
    with trainer.judged_weights(), trainer.autocast():
        for batch in batches:
            found = count_rows(model.heads_config, batch, depth)
            part = model(batch, [1.0] * depth, found)
            losses += part.losses.double().cpu()
            correct += part.correct.cpu()
            counts = [sum(pair) for pair in zip(counts, found, strict=True)]
            num_bytes += _bytes_of_targets(model, batch, token_bytes)
    return Validation(
        bits_per_byte=float(losses[0]) / math.log(2) / max(num_bytes, 1), heads=head_metrics(losses, correct, counts)
    )


def _bytes_of_targets(model: PretrainModel, batch: LabelledText, token_bytes: Tensor) -> int:
    targets, valid = labels(model.heads_config, batch, 0)
    return int(token_bytes.to(targets.device)[targets[valid]].sum())
