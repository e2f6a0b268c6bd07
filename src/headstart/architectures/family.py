"""What sets a family apart: a few facts beside what all decoders share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A trunk family.

    Attributes:
        name: of the family, and `model_type` in Hugging Face configs.
        gguf_architecture: `general.architecture` in GGUF files.
        gguf_interleaves: GGUF stores the rows of query and key weights so that
            rotated pairs are neighbours; they are put back on loading.
        huggingface_features: from a config.json to `TrunkConfig` fields of this family.
        gguf_features: fields of this family that GGUF files do not state.
    """

    name: str
    gguf_architecture: str
    gguf_interleaves: bool
    huggingface_features: Callable[[Settings], dict[str, Any]]
    gguf_features: Mapping[str, Any]


def layer_windows(settings: Settings) -> tuple[int, ...]:
    """Sliding windows by layer, from the keys that Qwen configs use."""
    num_layers: int = settings["num_hidden_layers"]
    window: int | None = settings.get("sliding_window")
    if not settings.get("use_sliding_window") or window is None:
        return (0,) * num_layers
    if kinds := settings.get("layer_types"):
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = settings.get("max_window_layers", 0)
    return tuple(window if layer >= first else 0 for layer in range(num_layers))
