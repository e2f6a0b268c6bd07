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


# what transformers takes where a config.json leaves them out
_USUAL_WINDOW, _USUAL_FIRST_LAYER = 4096, 28


def sliding_window(settings: Settings, key: str = "sliding_window", default: int = 0) -> int:
    """Positions that a layer with a sliding window sees; 0 for all, which settings spell as 0, null or false.

    Args:
        settings: of the model.
        key: where they say it.
        default: if they do not.
    """
    value = settings.get(key, default)
    return count({key: value}, key) if value else 0


def usual_sliding_window(settings: Settings) -> int:
    """The same of a config.json, in which a window that is not mentioned is the usual one."""
    return sliding_window(settings, default=_USUAL_WINDOW)


def layer_windows(settings: Settings) -> tuple[int, ...]:
    """Sliding windows by layer, from the keys that Qwen configs use.

    Raises:
        CheckpointError: the keys contradict each other, or are of the wrong type.
    """
    num_layers = count(settings, "num_hidden_layers")
    if not settings.get("use_sliding_window") or not (window := usual_sliding_window(settings)):
        return (0,) * num_layers
    if kinds := settings.get("layer_types"):
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise CheckpointError(
                f"The model's setting 'layer_types' is no list of {num_layers} kinds, one for each layer. "
                "The file is damaged; fetch it again."
            )
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = real(settings, "max_window_layers", _USUAL_FIRST_LAYER)
    return tuple(window if layer >= first else 0 for layer in range(num_layers))
