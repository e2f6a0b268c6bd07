"""Tensor names: the part that says what a weight is, whatever wraps or quantises it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headstart.checkpoint.declared import DeclaredTensor

# models that also see or hear keep their text model under one of these
_WRAPPERS = (
    (re.compile(r"^model\.language_model\."), "model."),
    (re.compile(r"^language_model\.model\."), "model."),
    (re.compile(r"^language_model\."), ""),
)

# where values stand: plain, GPTQ and AWQ, compressed-tensors, MXFP4
_VALUES = re.compile(r"(?:\.(?:weight|qweight|weight_packed)|_blocks)$")
# what only helps to read them, or is added to a product
_COMPANION = re.compile(
    r"(?:\.(?:weight_scale(?:_inv|_2)?|weight_zero_point|weight_shape|weight_g_idx|input_scale|output_scale|[kvq]_scale"
    r"|scales?|biases|bias|qzeros|g_idx|input_min|input_max)|_scales|_scale_inv)$"
)
_PACKED = re.compile(r"(?:\.(?:weight|qweight|weight_packed)|_blocks)$")

# integers that are maps between vocabularies and the like, not parameters
_INTEGERS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL")


def canonical(name: str) -> str:
    """A name as if the text model were the whole model.

    Example:
        >>> canonical("model.language_model.layers.0.mlp.up_proj.weight")
        'model.layers.0.mlp.up_proj.weight'
    """
    for wrapper, plain in _WRAPPERS:
        if wrapper.match(name):
            return wrapper.sub(plain, name)
    return name


def stem(name: str) -> str | None:
    """What a tensor's values belong to; `None` for scales, zero points and biases, which are nothing alone.

    Example:
        >>> stem("mtp.fc.qweight"), stem("mtp.fc.scales")
        ('mtp.fc', None)
    """
    if _COMPANION.search(name) and not name.endswith("correction_bias"):
        return None
    return _VALUES.sub("", name)


def num_parameters(tensor: DeclaredTensor, bits: int | None) -> int:
    """The values of a tensor: several to an element if it is packed, none if it is a scale or a map.

    Args:
        tensor: of a safetensors file, or of a GGUF file, whose shapes are never of packed elements.
        bits: of a quantised value as the model's settings have it; 4, the usual, if they do not say.
    """
    if tensor.kind not in _INTEGERS:
        return 0 if _is_scale(tensor.name) else tensor.num_elements
    if not _PACKED.search(tensor.name):
        return 0
    element_bits = 8 if tensor.kind.endswith("8") else 32
    # codes of eight bits in bytes are one to an element
    per_element = 1 if tensor.kind == "I8" else max(element_bits // (bits or 4), 1)
    return tensor.num_elements * per_element


def num_outputs(tensor: DeclaredTensor) -> int:
    """Rows of a matrix: what its product yields for a token."""
    # GPTQ and AWQ store [in, out], packed
    return tensor.shape[-1 if tensor.name.endswith(".qweight") else 0] if tensor.shape else 0


def by_stem(tensors: Mapping[str, DeclaredTensor]) -> dict[str, list[DeclaredTensor]]:
    """Tensors by the canonical name of what they belong to, companions beside their values."""
    found: dict[str, list[DeclaredTensor]] = {}
    for name, tensor in tensors.items():
        plain = canonical(name)
        key = stem(plain)
        found.setdefault(_COMPANION.sub("", plain) if key is None else key, []).append(tensor)
    return found


def holds_values(tensors: list[DeclaredTensor]) -> bool:
    """Whether there is more than scales and biases."""
    return any(stem(canonical(tensor.name)) is not None for tensor in tensors)


def _is_scale(name: str) -> bool:
    return _COMPANION.search(name) is not None and not name.endswith("bias")
