"""Mistral: llama with a sliding window. Its GGUF files call themselves llama."""

from headstart.architectures.family import Family

MISTRAL = Family(
    name="mistral",
    gguf_architecture="mistral",
    gguf_interleaves=True,
    huggingface_features=lambda settings: {
        "windows": (settings.get("sliding_window") or 0,) * settings["num_hidden_layers"],
    },
    gguf_features={},
)
