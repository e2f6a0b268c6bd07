"""A model folder as joint training writes it, opened with transformers: the same logits, the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.runtime.torch_runtime import TextBatch, load_weights  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.joint_model import ModelFolder  # noqa: E402
from headstart.train.trunk_module import TrunkModule  # noqa: E402

TEXT = "<|im_start|>user\nThe thing, and 12 others?<|im_end|>\n"


@pytest.mark.parametrize(
    "options", [{}, {"family": "qwen3", "tied": False}, {"family": "mistral", "window": 8}], ids=str
)
def test_transformers_opens_what_was_written(options: dict[str, Any], tmp_path: Path) -> None:
    adds_bos = {"metadata": {"tokenizer.ggml.add_bos_token": True}}
    source = open_checkpoint(write_tiny_gguf(tmp_path / "model.gguf", **options, **adds_bos))
    folder = ModelFolder(tmp_path, source, "trained")
    folder.write(load_weights(source))
    kept = folder.keep()
    ids = kept.tokenizer().encode(TEXT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path)
    assert tokenizer(TEXT).input_ids == ids
    assert tokenizer.chat_template == kept.tokenizer().chat_template

    config = read_config(kept)[1]
    trunk = TrunkModule(config, load_weights(kept), (config.num_layers,))
    positions = torch.arange(len(ids))[None]
    with torch.no_grad():
        states = trunk(TextBatch(torch.tensor([ids]), torch.zeros_like(positions), positions)).states
        model = transformers.AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
        expected = model(torch.tensor([ids])).logits
    torch.testing.assert_close(states @ trunk.unembedding.T, expected, rtol=1e-4, atol=1e-4)
