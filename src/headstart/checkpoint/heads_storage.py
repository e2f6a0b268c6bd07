"""How the weights of heads are stored: floats of three widths, or 8-bit codes.

A matrix of codes is two tensors: int8 `NAME` [out, in] and float16 `NAME.scales`
[out, in / 32], one scale for each 32 inputs. Together they are exactly a Q8_0
tensor, and they are handed on as one: a runtime that computes with 8 bits takes
codes and scales as they are, and nothing is rounded twice. Vectors stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headstart.checkpoint.bfloat16 import round_to_bfloat16
from headstart.checkpoint.kinds import KINDS
from headstart.checkpoint.tensor import Tensor
from headstart.errors import CheckpointError, ConfigError

Storage = Literal["f32", "f16", "bf16", "int8"]

_GROUP = KINDS["Q8_0"].block_values
_SCALES = ".scales"
_MATRIX_KINDS = ("F32", "F16", "BF16")
_REMAKE = "The file is damaged or was altered; fetch or make it again."


def store_weights(weights: Mapping[str, NDArray[np.float32]], storage: Storage) -> list[Tensor]:
    """Weights as the tensors of a file.

    Args:
        weights: matrices [out, in] and vectors [n] by name.
        storage: of the matrices; "int8" rounds as the native runtime does when
            it quantises a float matrix on the way in.

    Raises:
        ConfigError: an unknown storage, or a weight that it cannot hold.
    """
    if storage not in get_args(Storage):
        raise ConfigError(f"storage = {storage!r}: it must be one of {', '.join(get_args(Storage))}.")
    return [tensor for name, values in weights.items() for tensor in _store(name, values, storage)]


def stored_shapes(stored: Mapping[str, Tensor], where: str) -> dict[str, tuple[int, ...]]:
    """The weights that a file's tensors make up, with their shapes. No weight is read.

    Args:
        stored: all tensors of the file that are weights or scales.
        where: the file, for errors.

    Raises:
        CheckpointError: a tensor is of a kind or shape that no weight has, or
            codes and scales do not belong together.
    """
    for name, tensor in stored.items():
        _check_kind(tensor, where)
        codes = stored.get(name.removesuffix(_SCALES))
        if name.endswith(_SCALES) and (codes is None or codes.kind != "I8"):
            raise CheckpointError(f"{where}: {name!r} are scales without a matrix of I8 codes. {_REMAKE}")
        if tensor.kind == "I8":
            _check_scales(tensor, stored.get(name + _SCALES), where)
    return {name: tensor.shape for name, tensor in stored.items() if not name.endswith(_SCALES)}


def restore_weight(stored: Mapping[str, Tensor], name: str) -> Tensor:
    """One weight of a file that `stored_shapes` has checked; codes and their scales become a tensor of kind Q8_0."""
    tensor = stored[name]
    if tensor.kind != "I8":
        return tensor
    blocks = np.empty(tensor.data.size // _GROUP, KINDS["Q8_0"].block)
    blocks["scale"] = stored[name + _SCALES].data.view("<f2")
    blocks["values"] = tensor.data.view(np.int8).reshape(-1, _GROUP)
    data = blocks.view(np.uint8)
    data.flags.writeable = False  # as if mapped
    return Tensor(name, tensor.shape, "Q8_0", data)


def _store(name: str, values: NDArray[np.float32], storage: Storage) -> list[Tensor]:
    if values.dtype != np.float32 or values.ndim not in (1, 2) or values.size == 0 or name.endswith(_SCALES):
        raise ConfigError(
            f"Weight {name!r} is {values.dtype} {list(values.shape)}: it must be a float32 matrix or vector that is "
            f"not empty, and its name must not end in {_SCALES!r}."
        )
    if not np.isfinite(values).all():
        raise ConfigError(f"Weight {name!r} has values that are not finite. Go back to a state before training failed.")
    if values.ndim == 1 or storage == "f32":
        return [_plain(name, "F32", values)]
    with np.errstate(over="ignore"):  # what becomes infinite is refused by name
        if storage == "int8":
            tensors = _codes(name, values)
        elif storage == "f16":
            tensors = [_plain(name, "F16", values.astype(np.float16))]
        else:
            tensors = [_plain(name, "BF16", round_to_bfloat16(values))]
    if not all(np.isfinite(tensor.dequantize()).all() for tensor in tensors if tensor.kind != "I8"):
        raise ConfigError(
            f"Weight {name!r} reaches {float(np.abs(values).max()):.3g}, which {storage} cannot hold. Store these "
            "heads as f32."
        )
    return tensors


def _codes(name: str, values: NDArray[np.float32]) -> list[Tensor]:
    num_outputs, num_inputs = values.shape
    if num_inputs % _GROUP:
        raise ConfigError(
            f"Weight {name!r} has {num_inputs} inputs: int8 takes multiples of {_GROUP}. Store these heads as bf16."
        )
    groups = values.reshape(num_outputs, -1, _GROUP)
    scales = (np.abs(groups).max(axis=2) / np.float32(127)).astype(np.float16)
    factors = scales.astype(np.float32)[..., None]
    # a group that is nearer to zero than the least scale is zero
    codes = np.rint(np.divide(groups, factors, out=np.zeros_like(groups), where=factors > 0)).clip(-127, 127)
    return [_plain(name, "I8", codes.astype(np.int8).reshape(values.shape)), _plain(name + _SCALES, "F16", scales)]


def _plain(name: str, kind: str, values: NDArray[Any]) -> Tensor:
    return Tensor(name, values.shape, kind, np.ascontiguousarray(values).reshape(-1).view(np.uint8))


def _check_kind(tensor: Tensor, where: str) -> None:
    allowed: tuple[str, ...]
    if tensor.name.endswith(_SCALES):
        allowed = ("F16",)
    elif len(tensor.shape) == 1:
        allowed = ("F32",)
    else:
        allowed = (*_MATRIX_KINDS, "I8")
    if tensor.kind not in allowed:
        raise CheckpointError(
            f"{where}: {tensor.name!r} has dtype {tensor.kind}; allowed: {', '.join(allowed)}. {_REMAKE}"
        )
    if len(tensor.shape) not in (1, 2) or 0 in tensor.shape:
        raise CheckpointError(
            f"{where}: {tensor.name!r} has shape {list(tensor.shape)}: no matrix or vector. {_REMAKE}"
        )


def _check_scales(codes: Tensor, scales: Tensor | None, where: str) -> None:
    if scales is None:
        raise CheckpointError(
            f"{where}: {codes.name + _SCALES!r}, the scales of {codes.name!r}, are missing. {_REMAKE}"
        )
    num_outputs, num_inputs = codes.shape
    if num_inputs % _GROUP or scales.shape != (num_outputs, num_inputs // _GROUP):
        raise CheckpointError(
            f"{where}: {codes.name!r} has shape {list(codes.shape)} and its scales {list(scales.shape)}: there must be "
            f"one for each {_GROUP} inputs of an output. {_REMAKE}"
        )
