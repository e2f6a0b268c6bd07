"""Parameters and memory of trunk and heads, from shapes alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.checkpoint.declared import DeclaredTensor
from headstart.measure.inspect.describe import Description
from headstart.measure.inspect.modules import FoundHeads
from headstart.measure.inspect.names import canonical, num_outputs, num_parameters, stem
from headstart.measure.inspect.settings import lookup, quantisation, whole

CACHE_VALUE_BYTES = 2  # what engines use by default: float16 or bfloat16

# copies of the trunk's matrices, which engines replace by the trunk's own
_COPIED_EMBEDDINGS = re.compile(r"(?:.+\.)?embed_tokens")
_COPIED_UNEMBEDDINGS = re.compile(r"(?:.+\.)?(?:shared_head\.head|shared_head_head|lm_head)")

# whose outputs a layer keeps for every token; MLA keeps one vector for keys and values
_CACHED = re.compile(r"(?:.+\.)?(?:k_proj|v_proj|wk|wv|attn_k|attn_v|kv_a_proj_with_mqa|attn_kv_a_mqa)")
_CACHED_FUSED = re.compile(r"(?:.+\.)?(?:qkv_proj|attn_qkv)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What a checkpoint takes. Values are `None` where only names are known.

    Attributes:
        total_parameters: of everything.
        trunk_parameters: without heads.
        heads_parameters: that only the heads have.
        copied_parameters: of embeddings and unembeddings that stand in the heads' files a second time.
        total_bytes: in the file.
        heads_bytes: of what only the heads have.
        copied_bytes: of the copies.
        cache_bytes_per_token: that the heads keep for a token, at two bytes a value.
        trunk_formats: bytes of the trunk by number format.
        heads_formats: the same of the heads.
    """

    total_parameters: int | None = None
    trunk_parameters: int | None = None
    heads_parameters: int | None = None
    copied_parameters: int | None = None
    total_bytes: int | None = None
    heads_bytes: int | None = None
    copied_bytes: int | None = None
    cache_bytes_per_token: int | None = None
    trunk_formats: Mapping[str, int] = field(default_factory=dict)
    heads_formats: Mapping[str, int] = field(default_factory=dict)


def measure_sizes(description: Description, heads: FoundHeads, *, own_unembeddings: bool = False) -> Sizes:
    """Add up a checkpoint's tensors.

    Args:
        description: of the checkpoint.
        heads: that were found in it.
        own_unembeddings: whether theirs are not the trunk's.
    """
    if description.tensors is None or not description.has_shapes:
        return Sizes(total_bytes=description.total_bytes)
    stated = quantisation(description.settings)
    bits = None if stated is None else stated["bits"]
    everything = tuple(description.tensors.values())
    whole_file = heads.layout is not None and heads.layout.is_whole
    of_heads = everything if whole_file else tuple(tensor for group in heads.tensors.values() for tensor in group)
    names = {tensor.name for tensor in of_heads}
    of_trunk = tuple(tensor for tensor in everything if tensor.name not in names)
    # a drafter that is a file of its own brings what it has because it needs it
    copies = () if whole_file else tuple(tensor for tensor in of_heads if _is_copy(tensor, own_unembeddings))
    copied = {tensor.name for tensor in copies}
    own = tuple(tensor for tensor in of_heads if tensor.name not in copied)
    return Sizes(
        total_parameters=_parameters(everything, bits),
        trunk_parameters=_parameters(of_trunk, bits),
        heads_parameters=_parameters(own, bits),
        copied_parameters=_parameters(copies, bits),
        total_bytes=_bytes(everything),
        heads_bytes=_bytes(own),
        copied_bytes=_bytes(copies),
        cache_bytes_per_token=_cache_values(own, description.settings) * CACHE_VALUE_BYTES,
        trunk_formats=_formats(of_trunk),
        heads_formats=_formats(of_heads),
    )


def _is_copy(tensor: DeclaredTensor, own_unembeddings: bool) -> bool:
    name = stem(canonical(tensor.name))
    if name is None:
        return False
    is_unembedding = _COPIED_UNEMBEDDINGS.fullmatch(name) is not None
    return _COPIED_EMBEDDINGS.fullmatch(name) is not None or (is_unembedding and not own_unembeddings)


def _parameters(tensors: Iterable[DeclaredTensor], bits: int | None) -> int:
    return sum(num_parameters(tensor, bits) for tensor in tensors)


def _bytes(tensors: Iterable[DeclaredTensor]) -> int:
    return sum(tensor.num_bytes for tensor in tensors)


def _formats(tensors: Iterable[DeclaredTensor]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for tensor in tensors:
        counted[tensor.kind] += tensor.num_bytes
    return dict(counted.most_common())


def _cache_values(tensors: Iterable[DeclaredTensor], settings: Mapping[str, Any]) -> int:
    values = 0
    for tensor in tensors:
        name = stem(canonical(tensor.name))
        if name is None or len(tensor.shape) < 2:
            continue
        if _CACHED.fullmatch(name):
            values += num_outputs(tensor)
        elif _CACHED_FUSED.fullmatch(name):
            values += max(num_outputs(tensor) - _query_width(settings), 0)
    return values


def _query_width(settings: Mapping[str, Any]) -> int:
    heads, head_dim = whole(settings, "num_attention_heads"), whole(settings, "head_dim")
    hidden = lookup(settings, "hidden_size")
    if heads and head_dim:
        return heads * head_dim
    return hidden if isinstance(hidden, int) else 0
