"""A tiny trunk in torch with texts of its own, for tests of what heads learn from it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headstart.checkpoint import Checkpoint, open_checkpoint
from headstart.testing.tiny_heads import random_heads, tiny_heads_config
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.train.text_shard import Document

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from headstart.train.heads_module import HeadsModule
    from headstart.train.packing import Windows


@pytest.fixture(scope="module")
def one_thread_and_no_pictures() -> Iterator[None]:
    """For whole runs of training, most of whose time would go into drawing."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checkpoint]:
    """`tiny_checkpoint(**options of write_tiny_gguf)`, each written once."""

    @functools.cache
    def get(**options: Any) -> Checkpoint:
        return open_checkpoint(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", **options))

    return get


def random_documents(lengths: Sequence[int], seed: int = 0) -> list[Document]:
    """Documents whose answers begin after some tokens, and have a gap here and there."""
    random = np.random.default_rng(seed)
    documents = []
    for length in lengths:
        supervised = random.random(length) < 0.8
        supervised[: min(2, length // 2)] = False
        supervised[-1] = True
        tokens = random.integers(0, 300, length).astype(np.int32)
        documents.append(Document(tokens=tokens, supervised=supervised, temperature=0.0, seed=0, category="test"))
    return documents


@dataclass(frozen=True)
class Lab:
    """A trunk's weights, and batches with what it says.

    Attributes:
        checkpoint: the trunk.
        weights: by the names of its program.
        dtype: of everything.
    """

    checkpoint: Checkpoint
    weights: dict[str, Tensor]
    dtype: torch.dtype

    documents = staticmethod(random_documents)

    @property
    def unembedding(self) -> Tensor:
        return self.weights.get("unembedding", self.weights["embedding"])

    def pack(self, documents: Sequence[Document], window: int) -> Windows:
        from headstart.train.packing import pack

        return pack(documents, range(len(documents)), window)

    def batch(self, windows: Windows, indices: Sequence[int] | None = None, taps: tuple[int, ...] = (2,)) -> Any:
        """A `TrainingBatch` of windows, the taps by the torch trunk itself."""
        import torch

        from headstart.architectures.decoder import decoder_program
        from headstart.architectures.reading import read_config
        from headstart.runtime.torch_attention import CausalAttention
        from headstart.runtime.torch_runtime import TextBatch, run_program
        from headstart.train.heads_loss import TrainingBatch

        chosen = list(range(len(windows)) if indices is None else indices)
        arrays = (windows.tokens, windows.documents, windows.positions)
        text = TextBatch(*(torch.from_numpy(array[chosen].astype(np.int64)) for array in arrays))
        config = read_config(self.checkpoint)[1]
        program = decoder_program(config, taps)
        with torch.no_grad():
            outcome = run_program(program, self.weights, config.rotary, text, CausalAttention(text))
            logits = outcome.hidden @ self.unembedding.T
        return TrainingBatch(
            text=text,
            supervised=torch.from_numpy(windows.supervised[chosen]),
            taps=outcome.kept,
            trunk_states=outcome.hidden,
            log_normaliser=logits.logsumexp(2),
            likeliest=logits.argmax(2),
        )

    def heads(self, name: str, vocabulary: Tensor | None = None, seed: int = 0) -> HeadsModule:
        """Random heads, one of `TINY_HEADS`, every part of which shows in the logits."""
        import torch

        from headstart.architectures.reading import read_config
        from headstart.train.heads_module import HeadsModule

        trunk = read_config(self.checkpoint)[1]
        config = tiny_heads_config(name, draft_vocab_size=0 if vocabulary is None else len(vocabulary))
        heads = HeadsModule(config, trunk, self.weights, vocabulary).to(self.dtype)
        values = random_heads(config, trunk, seed)
        with torch.no_grad():
            for own, weight in heads.own_weights().items():
                weight.copy_(torch.from_numpy(values[own]))
        return heads


@pytest.fixture(scope="session")
def make_lab(tiny_checkpoint: Callable[..., Checkpoint]) -> Callable[..., Lab]:
    """`make_lab("float64" or "float32", **options of write_tiny_gguf)`."""
    torch = pytest.importorskip("torch")
    from headstart.runtime.torch_runtime import load_weights

    torch.set_num_threads(1)

    @functools.cache
    def get(dtype: str = "float64", **options: Any) -> Lab:
        checkpoint = tiny_checkpoint(**{"kind": "F32", "tied": False, **options})
        return Lab(checkpoint, load_weights(checkpoint, getattr(torch, dtype)), getattr(torch, dtype))

    return get


@pytest.fixture(scope="session")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    """In float64."""
    return make_lab()
