"""What a model's heads reach in the native engine, and whether its texts flatter them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from headstart.architectures.heads import HeadsConfig
from headstart.records import Completion
from headstart.runtime.native import load_trunk
from headstart.train.corpus import TokenStore
from headstart.train.measured import AcceptanceMeter, MeasuredAcceptance, summarise
from headstart.train.pretrain.written_model import ModelWriter, head_arrays
from headstart.train.repetition import distinct_share
from headstart.train.text_shard import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """Figures of some answers.

    Attributes:
        greedy: of greedy answers.
        drawn: of answers at temperature 1, which a young model repeats less in.
        distinct_8gram_share: of the greedy answers, see `headstart.train.repetition.distinct_share`: a model that
            repeats itself is easy to guess.
    """

    greedy: MeasuredAcceptance
    drawn: MeasuredAcceptance
    distinct_8gram_share: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain data; the greedy figures stand at the top."""
        figures = {"drawn": self.drawn.to_json(), "distinct_8gram_share": self.distinct_8gram_share}
        return self.greedy.to_json() | figures

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Acceptance:
        """From what `to_json` gave, perhaps among other keys."""
        return cls(
            greedy=MeasuredAcceptance.from_json(data),
            drawn=MeasuredAcceptance.from_json(data["drawn"]),
            distinct_8gram_share=data["distinct_8gram_share"],
        )


class PretrainMeter:
    """Answers the same prompts with whatever weights the model has, as it would be written."""

    def __init__(
        self, writer: ModelWriter, heads: HeadsConfig, prompts: Sequence[Sequence[int]], threads: int | None
    ) -> None:
        """Take what does not change.

        Args:
            writer: of the model.
            heads: what its heads look like.
            prompts: token ids; none that it was trained on.
            threads: CPU threads.
        """
        self._writer, self._heads, self._prompts, self._threads = writer, heads, prompts, threads

    def measure(self, weights: Mapping[str, Tensor]) -> Acceptance:
        """What the native engine accepts with the weights of `PretrainTrainer.weights`."""
        written = self._writer.write(weights)
        trunk = load_trunk(written, threads=self._threads, taps=self._heads.taps)
        meter = AcceptanceMeter(trunk, written, self._heads, None, self._prompts)
        arrays = head_arrays(weights)
        greedy = meter.answers(arrays)
        drawn = meter.answers(arrays, temperature=1.0)
        self._writer.clear()
        return Acceptance(
            greedy=summarise(greedy), drawn=summarise(drawn), distinct_8gram_share=distinct_share(_documents(greedy))
        )


def prompts_of(store: TokenStore, count: int, tokens: int) -> list[list[int]]:
    """Beginnings to write on from, out of the middle of documents all over a store.

    Args:
        store: held-out documents.
        count: of prompts, at most.
        tokens: of a prompt.
    """
    long_enough = np.flatnonzero(store.lengths > 2 * tokens)
    count = min(count, len(long_enough))
    prompts = []
    for place in range(count):
        document = store.document(int(long_enough[place * len(long_enough) // count]))
        start = (len(document) - tokens) // 2
        prompts.append([int(token) for token in document[start : start + tokens]])
    return prompts


def _documents(completions: Iterable[Completion]) -> list[Document]:
    return [
        Document(
            tokens=np.asarray(completion.token_ids, np.int32),
            supervised=np.ones(len(completion.token_ids), np.bool_),
            temperature=0.0,
            seed=completion.seed,
            category="",
        )
        for completion in completions
    ]
