"""What a graft is put together from: a text in parts, windows with their taps, heads, and their trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig
from headstart.train.draft_vocabulary import choose_vocabulary, coverage
from headstart.train.graft_config import GraftConfig
from headstart.train.heads_loss import HeadsLossConfig, TrainingBatch
from headstart.train.heads_module import HeadsModule
from headstart.train.holdout import hold_out
from headstart.train.initialise import initialise
from headstart.train.loss_mix import LossMix
from headstart.train.packing import Windows, pack
from headstart.train.repetition import distinct_share
from headstart.train.taps import TapCache, TrunkHead
from headstart.train.text_shard import Document
from headstart.train.trainer import HeadsTrainer, TrainerConfig
from headstart.train.warm_start import WarmStart

BORROWED = ("embedding", "unembedding", "final_norm")
"""What heads use of the trunk's weights; the rest is not needed in torch."""

_MEASURED_PROMPTS = 24

# windows whose rows the least-squares start is fitted to
_FITTING_WINDOWS = 40


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingText:
    """A text, ready to be trained on.

    Attributes:
        windows: to train on.
        validation: those held out.
        prompts: token ids, what held-out documents begin with.
        vocabulary: int64 [V], ids of a reduced draft vocabulary, or `None`.
        coverage: the share of the answers that these cover.
        distinct_8gram_share: of the whole text, see `distinct_share`.
    """

    windows: Windows
    validation: Windows
    prompts: Sequence[Sequence[int]]
    vocabulary: NDArray[np.int64] | None
    coverage: float
    distinct_8gram_share: float | None

    @property
    def draft_ids(self) -> NDArray[np.int32] | None:
        """The vocabulary as heads files and the native runtime take it."""
        return None if self.vocabulary is None else self.vocabulary.astype(np.int32)


def part_text(
    documents: Sequence[Document],
    config: GraftConfig,
    heads: HeadsConfig,
    trunk: TrunkConfig,
    start: WarmStart | None = None,
) -> TrainingText:
    """Hold some of a text out, pack both parts, and choose the draft vocabulary, or keep that of heads gone on from.

    Raises:
        ConfigError: a part has nothing to learn from.
    """
    parts = hold_out(documents)
    answers = pack(documents, parts.training, config.window)
    vocabulary = start.vocabulary if start is not None else None
    if vocabulary is None and heads.draft_vocab_size:
        vocabulary = choose_vocabulary(answers, trunk.vocab_size, heads.draft_vocab_size)
    return TrainingText(
        windows=answers if config.learn == "answers" else pack(_all_learnt(documents), parts.training, config.window),
        validation=pack(documents, parts.held_out, config.window),
        prompts=parts.prompts[:_MEASURED_PROMPTS],
        vocabulary=vocabulary,
        coverage=1.0 if vocabulary is None else coverage(answers, trunk.vocab_size, vocabulary),
        distinct_8gram_share=distinct_share(documents),
    )


def _all_learnt(documents: Sequence[Document]) -> list[Document]:
    return [replace(document, supervised=np.ones_like(document.supervised)) for document in documents]


def layers_to_read(heads: HeadsConfig, trunk: TrunkConfig) -> tuple[int, ...]:
    """Layers that a text is read with: those of the heads, and the last, which says what the trunk would choose."""
    return tuple(sorted({*heads.taps, trunk.num_layers}))


def make_trunk_head(weights: Mapping[str, Tensor], trunk: TrunkConfig) -> TrunkHead:
    """What turns the trunk's last state into its logits."""
    return TrunkHead(
        final_norm=weights["final_norm"],
        norm_eps=trunk.norm_eps,
        unembedding=weights["embedding" if trunk.tied else "unembedding"].bfloat16(),
    )


class TapBatches:
    """Windows with the taps that certain heads read."""

    def __init__(self, cache: TapCache, heads: HeadsConfig, trunk: TrunkConfig) -> None:
        """For a cache of `layers_to_read`."""
        layers = layers_to_read(heads, trunk)
        # the heads' taps lie side by side, since only the last layer may come on top
        assert layers[: len(heads.taps)] == heads.taps
        self._cache = cache
        self._columns = slice(0, len(heads.taps) * trunk.hidden_size)

    def batch(self, windows: Windows, indices: Sequence[int]) -> TrainingBatch:
        """Windows by their numbers."""
        return self._cache.batch(windows, indices, self._columns)

    def singly(self, windows: Windows, count: int) -> list[TrainingBatch]:
        """Windows from all over the text, one a batch; `count` at most. Packed, the longest documents stand first."""
        count = min(count, len(windows))
        return [self.batch(windows, [place * len(windows) // count]) for place in range(count)]


def make_heads(
    config: HeadsConfig,
    trunk: TrunkConfig,
    weights: Mapping[str, Tensor],
    text: TrainingText,
    batches: TapBatches,
    seed: int,
    start: WarmStart | None = None,
) -> HeadsModule:
    """Heads as training begins with them.

    Args:
        config: of the heads.
        trunk: of the trunk.
        weights: the trunk's, at least those `BORROWED`.
        text: some windows of it are fitted.
        batches: give these.
        seed: of what is random in them.
        start: heads that training goes on from, or `None` to begin anew.
    """
    chosen = None if text.vocabulary is None else torch.from_numpy(text.vocabulary)
    heads = HeadsModule(config, trunk, weights, chosen)
    if start is not None:
        heads.load_own({name: torch.from_numpy(weight) for name, weight in start.weights.items()})
        return heads
    generator = torch.Generator().manual_seed(seed)
    initialise(heads, weights, batches.singly(text.windows, _FITTING_WINDOWS), generator)
    return heads


def make_trainer(
    heads: HeadsModule, config: GraftConfig, text: TrainingText, batches: TapBatches, trunk_head: TrunkHead
) -> HeadsTrainer:
    """A trainer at step 0, whose number of steps is yet to be planned."""
    unembedding = trunk_head.unembedding
    if heads.vocabulary is not None:
        unembedding = unembedding[heads.vocabulary]
    return HeadsTrainer(
        heads,
        unembedding,
        make_loss_config(config),
        make_trainer_config(config),
        len(text.windows),
        lambda indices: batches.batch(text.windows, indices),
    )


def make_loss_config(config: GraftConfig) -> HeadsLossConfig:
    """What is made small."""
    return HeadsLossConfig(
        mix=LossMix.parse(config.loss),
        depth_weights=config.weights_of_depths(),
        feature_weight=config.feature_weight,
    )


def make_trainer_config(config: GraftConfig) -> TrainerConfig:
    """How steps are taken; their number is yet to be planned."""
    return TrainerConfig(
        num_steps=1,
        batch_windows=config.batch_windows,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        seed=config.seed,
    )
