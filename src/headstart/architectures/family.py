"""What sets a family apart: a few facts beside what all decoders share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.architectures.settings import Settings, count, real
from headstart.errors import CheckpointError


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


def sliding_window(settings: Settings) -> int:
    """Positions that a layer with a sliding window sees; 0 if the settings have none."""
    return count(settings, "sliding_window") if settings.get("sliding_window") else 0


def layer_windows(settings: Settings) -> tuple[int, ...]:
    """Sliding windows by layer, from the keys that Qwen configs use.

    Raises:
        CheckpointError: the keys contradict each other, or are of the wrong type.
    """
    num_layers = count(settings, "num_hidden_layers")
    window = sliding_window(settings)
    if not settings.get("use_sliding_window") or not window:
        return (0,) * num_layers
    if kinds := settings.get("layer_types"):
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise CheckpointError(
                f"The model's setting 'layer_types' is no list of {num_layers} kinds, one for each layer. "
                "The file is damaged; fetch it again."
            )
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = real(settings, "max_window_layers", 0.0)
    return tuple(window if layer >= first else 0 for layer in range(num_layers))
