"""Windows of a corpus as tensors, and which rows learn at which depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headstart.architectures.heads import HeadsConfig
from headstart.runtime.torch_runtime import TextBatch
from headstart.train.corpus import PackedWindows
from headstart.train.heads_module import guess_offset
from headstart.train.targets import future_targets


@dataclass(frozen=True, slots=True, eq=False)
class LabelledText:
    """Windows, and what is learnt of them.

    Attributes:
        text: tokens, documents and positions, each [B, T].
        supervised: bool [B, T], tokens to be learnt as targets.
    """

    text: TextBatch
    supervised: Tensor

    def __len__(self) -> int:
        return len(self.supervised)

    def split(self, windows: int) -> list[LabelledText]:
        """Parts of at most so many windows."""
        text = self.text
        fields = (text.tokens, text.documents, text.positions, self.supervised)
        parts = zip(*(torch.split(tensor, windows) for tensor in fields), strict=True)
        return [LabelledText(TextBatch(*three), mask) for *three, mask in parts]


def labelled_text(windows: PackedWindows, device: torch.device) -> LabelledText:
    """The windows of a step on a device."""
    arrays = (windows.tokens, windows.documents, windows.positions)
    text = TextBatch(*(torch.from_numpy(array.astype(np.int64)).to(device) for array in arrays))
    return LabelledText(text, torch.from_numpy(windows.supervised).to(device))


def labels(config: HeadsConfig | None, batch: LabelledText, depth: int) -> tuple[Tensor, Tensor]:
    """What each row is to predict, and whether it learns.

    Depth 0 is the trunk. A row of depth 1 or more learns only if its chain began where the trunk had said something
    of the text: the first row of a document has no state to read, and is never asked for a guess in use.

    Args:
        config: of the heads; not read for depth 0.
        batch: the windows.
        depth: from 0.

    Returns:
        labels: int64 [B, T], `IGNORE_INDEX` where there is none.
        learns: bool [B, T].
    """
    text = batch.text
    if depth == 0:
        return future_targets(text.tokens, text.documents, batch.supervised, 1)
    assert config is not None
    found, valid = future_targets(text.tokens, text.documents, batch.supervised, guess_offset(config, depth))
    first = depth if config.recurrent else 1
    return found, valid & (text.positions >= first)


def count_rows(config: HeadsConfig | None, batch: LabelledText, depth: int) -> list[int]:
    """Rows that learn at depth 0, 1, ... `depth`: the denominators of their mean losses."""
    return [int(labels(config, batch, level)[1].sum()) for level in range(depth + 1)]
