"""Mistral: llama with a sliding window. Its GGUF files call themselves llama."""

from headstart.architectures.family import Family, usual_sliding_window
from headstart.architectures.settings import count

MISTRAL = Family(
    name="mistral",
    gguf_architecture="mistral",
    gguf_interleaves=True,
    huggingface_features=lambda settings: {
        "windows": (usual_sliding_window(settings),) * count(settings, "num_hidden_layers"),
    },
    gguf_features={},
)
