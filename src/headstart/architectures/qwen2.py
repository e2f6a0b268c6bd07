"""Qwen2 and Qwen2.5: biases on queries, keys and values; a window on the upper layers, if any."""

from headstart.architectures.family import Family, layer_windows

QWEN2 = Family(
    name="qwen2",
    gguf_architecture="qwen2",
    gguf_interleaves=False,
    huggingface_features=lambda settings: {"qkv_bias": True, "windows": layer_windows(settings)},
    gguf_features={"qkv_bias": True},
)
