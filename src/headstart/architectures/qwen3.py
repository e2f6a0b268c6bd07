"""Qwen3: queries and keys normalised head by head."""

from headstart.architectures.family import Family, layer_windows

QWEN3 = Family(
    name="qwen3",
    gguf_architecture="qwen3",
    gguf_interleaves=False,
    huggingface_features=lambda settings: {
        "qkv_bias": settings.get("attention_bias", False),
        "output_bias": settings.get("attention_bias", False),
        "head_norms": True,
        "windows": layer_windows(settings),
    },
    gguf_features={"head_norms": True},
)
