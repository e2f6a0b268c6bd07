from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from headstart.architectures.decoder import decoder_program  # noqa: E402
from headstart.architectures.reading import read_config  # noqa: E402
from headstart.architectures.weights import wanted_shapes  # noqa: E402
from headstart.checkpoint import Checkpoint  # noqa: E402
from headstart.runtime.torch_attention import CausalAttention  # noqa: E402
from headstart.runtime.torch_runtime import TextBatch, load_weights, run_program  # noqa: E402
from headstart.train.targets import position_in_document  # noqa: E402
from headstart.train.trunk_module import TrunkModule  # noqa: E402
from headstart.train.trunk_parts import split_program  # noqa: E402

FAMILIES = {"llama": {}, "qwen2": {"biases": True}, "qwen3": {}, "llama, tied": {"tied": True}}


def text() -> TextBatch:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 300, (2, 12), generator=generator)
    documents = torch.tensor([[0] * 5 + [1] * 7, [0] * 12])
    return TextBatch(tokens, documents, position_in_document(documents))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("taps", [(), (2,), (0, 1, 3)], ids=str)
def test_in_parts_it_is_its_program(
    tiny_checkpoint: Callable[..., Checkpoint], family: str, taps: tuple[int, ...]
) -> None:
    options = {"family": family.split(",")[0], "num_layers": 3, "tied": False, "kind": "F32", **FAMILIES[family]}
    checkpoint = tiny_checkpoint(**options)
    _, config = read_config(checkpoint)
    weights = load_weights(checkpoint)
    trunk, batch = TrunkModule(config, weights, taps), text()
    assert len(trunk.blocks) == 3
    said = trunk(batch)
    program = decoder_program(config, taps)
    expected = run_program(program, weights, config.rotary, batch, CausalAttention(batch))
    assert torch.equal(said.states, expected.hidden)
    assert (said.taps is None) == (not taps)
    if said.taps is not None:
        assert torch.equal(said.taps, expected.kept)
    assert trunk.weights().keys() == weights.keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in trunk.weights().items())


def test_every_weight_lies_in_one_part(tiny_checkpoint: Callable[..., Checkpoint]) -> None:
    _, config = read_config(tiny_checkpoint(kind="F32", num_layers=3))
    program = decoder_program(config, (1,))
    parts = split_program(program)
    named = [name for part in parts for name in part.weights]
    assert sorted(named) == sorted(set(named)) == sorted(wanted_shapes(program).keys() - {"unembedding"})
    assert [part.is_block for part in parts] == [False, True, True, True, False]
    for index, part in enumerate(parts):
        before = {value for earlier in parts[:index] for value in earlier.gives}
        assert set(part.reads) <= before
