"""Llama 1 to 3 and the many models of the same build (SmolLM, TinyLlama, ...)."""

from headstart.architectures.family import Family

LLAMA = Family(
    name="llama",
    gguf_architecture="llama",
    gguf_interleaves=True,
    huggingface_features=lambda settings: {
        "qkv_bias": settings.get("attention_bias", False),
        "output_bias": settings.get("attention_bias", False),
        "mlp_bias": settings.get("mlp_bias", False),
    },
    gguf_features={},
)
