from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headstart.testing.tiny_models import write_tiny_gguf
from headstart.train.chunk_size import rows_at_once
from headstart.train.corpus import open_corpus
from headstart.train.pretrain.blueprint import make_blueprint
from headstart.train.pretrain.config import DataConfig, PretrainConfig, TrainConfig
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads
from headstart.train.pretrain.scale import scale_of

if TYPE_CHECKING:
    from headstart.train.pretrain.batch import LabelledText
    from headstart.train.pretrain.model import PretrainModel

MakeConfig = Callable[..., PretrainConfig]

WINDOW, BATCH, VOCABULARY = 64, 2, 257
KINDS: dict[str, dict[str, Any]] = {
    "next token": {"n": 1},
    "parallel": {"n": 3},
    "parallel, own": {"n": 3, "own_unembedding": True},
    "linear": {"n": 3, "form": "linear"},
    "sequential": {"n": 3, "kind": "sequential"},
    "unrolled": {"n": 3, "kind": "sequential", "unrolled": True},
}
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"num_kv_heads": 2, "intermediate_size": 160},
    "tied": {"tied": True, "intermediate_size": 96},
    "qwen3": {"family": "qwen3", "num_kv_heads": 1, "intermediate_size": 128},
}


def config_of(heads: dict[str, Any], sizes: dict[str, Any], **train: Any) -> PretrainConfig:
    return PretrainConfig(
        model=ModelConfig(**{"hidden_size": 64, "num_layers": 2, "num_heads": 4, **sizes}),
        heads=PretrainHeads(**heads),
        data=DataConfig(sources=("stdlib",), tokenizer="bytes", window=WINDOW),
        train=TrainConfig(**{"batch_windows": BATCH, **train}),
    )


def model_and_batch(config: PretrainConfig) -> tuple[PretrainModel, LabelledText]:
    torch = pytest.importorskip("torch")
    from headstart.runtime.torch_runtime import TextBatch
    from headstart.train.pretrain.batch import LabelledText
    from headstart.train.pretrain.parts import make_model

    torch.set_num_threads(1)
    tokens = torch.randint(0, VOCABULARY, (BATCH, WINDOW), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(WINDOW).expand(BATCH, WINDOW).contiguous()
    text = TextBatch(tokens, torch.zeros_like(tokens), positions)
    batch = LabelledText(text, torch.ones_like(tokens, dtype=torch.bool))
    return make_model(make_blueprint(config, VOCABULARY), 0), batch


def run(model: PretrainModel, batch: LabelledText) -> Any:
    from headstart.train.pretrain.batch import count_rows

    depth = 0 if model.heads_config is None else model.heads_config.depth
    return model(batch, (1.0,) * depth, count_rows(model.heads_config, batch, depth)).loss


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_operations_are_those_of_a_real_step(kind: str, sizes: str) -> None:
    config = config_of(KINDS[kind], SIZES[sizes])
    scale = scale_of(config)
    model, batch = model_and_batch(config)
    assert scale.parameters == sum(weight.numel() for weight in model.parameters())
    assert scale.weights_bytes == 4 * scale.parameters

    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run(model, batch).backward()
    counted = {str(name): flops for name, flops in counter.get_flop_counts()["Global"].items()}
    # attention over a causal window is not among what is counted
    attentions = config.model.num_layers + (config.heads.depth if config.heads.form == "block" else 0)
    attention = attentions * 3 * 2 * 64 * (WINDOW + 1)
    assert counted["aten.mm"] == pytest.approx((scale.flops_per_token - attention) * BATCH * WINDOW, rel=1e-9)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_for_the_backward_pass(kind: str, sizes: str) -> None:
    config = config_of(KINDS[kind], SIZES[sizes])
    scale = scale_of(config)
    model, batch = model_and_batch(config)

    import torch

    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage  # held, so that its place is not taken by another
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run(model, batch)
    num_bytes = sum(storage.nbytes() for storage in kept.values())
    loss.backward()
    # heads that are turned back one by one are kept by the hook all the same: it counts what a plain loop would hold
    tolerance = 0.02 if kind == "unrolled" else 0.001
    assert scale.naive_activation_bytes == pytest.approx(num_bytes, rel=tolerance)
    alone = [part.activation_bytes for part in scale.parts]
    together = sum(alone) if config.heads.kind == "sequential" else alone[0] + max(alone[1:], default=0)
    assert scale.activation_bytes == together


@pytest.mark.parametrize("kind", KINDS)
def test_logits_exist_for_a_chunk_of_rows_only(kind: str) -> None:
    config = config_of(KINDS[kind], SIZES["llama"])
    model, batch = model_and_batch(config)

    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = [0]

    class Widest(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = function(*args, **(kwargs or {}))
            for tensor in found if isinstance(found, tuple) else (found,):
                if isinstance(tensor, torch.Tensor) and tensor.shape[-1:] == (VOCABULARY,):
                    largest[0] = max(largest[0], tensor.numel())
            return found

    copies = 20
    tokens = batch.text.tokens.repeat(copies, 1)
    many = type(batch)(
        type(batch.text)(tokens, torch.zeros_like(tokens), batch.text.positions.repeat(copies, 1)),
        batch.supervised.repeat(copies, 1),
    )
    with Widest():
        run(model, many).backward()
    assert largest[0] == rows_at_once(VOCABULARY) * VOCABULARY
    scale = scale_of(config_of(KINDS[kind], SIZES["llama"], batch_windows=BATCH * copies))
    unembedding = VOCABULARY * 64 * 4
    assert scale.logits_bytes == 2 * rows_at_once(VOCABULARY) * VOCABULARY * 4 + unembedding
    assert [part.logits_bytes for part in scale.parts] == [BATCH * copies * WINDOW * VOCABULARY * 4] * config.heads.n


def test_large_models_are_planned_at_once() -> None:
    """LLaMA-2's sizes, whose parameters are known."""
    sizes = {"hidden_size": 4096, "num_layers": 32, "num_heads": 32, "intermediate_size": 11008}
    data = DataConfig(sources=("stdlib",), tokenizer="bpe:32000", window=4096)
    seven = PretrainConfig(model=ModelConfig(**sizes), heads=PretrainHeads(n=1), data=data)
    assert scale_of(seven).parameters == 6_738_415_616
    equal = PretrainConfig(model=ModelConfig(**sizes), heads=PretrainHeads(n=4, equal_parameters=True), data=data)
    # each head has a final norm besides
    assert scale_of(equal).parameters == 6_738_415_616 + 3 * 4096
    large = {"hidden_size": 8192, "num_layers": 80, "num_heads": 64, "num_kv_heads": 8, "intermediate_size": 28672}
    seventy = PretrainConfig(model=ModelConfig(**large), heads=PretrainHeads(n=1), data=data)
    assert scale_of(seventy).parameters == 68_976_648_192
    heads = scale_of(equal)
    assert heads.naive_logits_bytes == 4 * 3 * 16 * 4096 * 32000 * 4
    assert heads.naive_peak_bytes - heads.peak_bytes > 90e9


def test_tokens_come_from_whatever_the_run_reads(tiny_run: MakeConfig, small_corpus: Path, tmp_path: Path) -> None:
    assert scale_of(tiny_run()).vocab_size == open_corpus(small_corpus).vocab_size == VOCABULARY
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    for choice, size in ((str(small_corpus / "tokenizer"), VOCABULARY), (str(model), 300), ("bpe:400", 400)):
        data = DataConfig(sources=("stdlib",), tokenizer=choice)
        assert scale_of(PretrainConfig(data=data)).vocab_size == size
    begun = PretrainConfig(model=ModelConfig(start=str(model)), data=DataConfig(sources=("stdlib",)))
    assert scale_of(begun).vocab_size == 300
    assert scale_of(config_of({"n": 1}, {}, minutes=1.0)).num_steps == 0
    assert scale_of(config_of({"n": 1}, {}, steps=7, ema=0.5)).average_bytes > 0
