"""Trunks of one operation, for tests that must know what goes in: a product alone, or given logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headstart import _native
from headstart.architectures.config import TrunkConfig
from headstart.architectures.program import Builder, Program
from headstart.architectures.rotary import RotaryConfig
from headstart.checkpoint.tensor import Tensor
from headstart.runtime.compile import compile_program
from headstart.runtime.native import NativeTrunk
from headstart.runtime.protocol import PAGE_TOKENS
from headstart.testing.quantise import make_tensor

_MAX_CONTEXT = 64


def make_product_trunk(
    weight: Tensor,
    inputs: ArrayLike,
    *,
    target: str = "",
    bias: Sequence[float] | None = None,
    threads: int = 1,
    instruction_set: str = "",
) -> NativeTrunk:
    """A trunk whose logits after token t are `weight @ inputs[t] + bias`.

    Args:
        weight: [V, k].
        inputs: float32 [T, k], T at most V; the trunk knows tokens 0 to V - 1.
        target: "int8" or "int8-row" to quantise a float weight, "" to keep it.
        bias: [V].
        threads, instruction_set: as in `headstart.runtime.native.load_trunk`.
    """
    num_outputs, num_inputs = weight.shape
    rows = np.zeros((num_outputs, num_inputs), np.float32)
    rows[: len(np.asarray(inputs))] = inputs
    build = Builder()
    x = build.select_wanted(build.embed("inputs", num_inputs))
    program = build.finish(build.linear(x, "weight", num_outputs, None if bias is None else "bias"))
    native = _native.Program(threads, instruction_set)
    matrices = {
        "inputs": _add(native, make_tensor("inputs", rows), ""),
        "weight": _add(native, weight, target),
    }
    vectors = {} if bias is None else {"bias": native.add_vector(np.asarray(bias, np.float32))}
    return _finished(native, program, matrices, vectors, num_outputs)


def make_logits_trunk(logits: NDArray[np.float32], *, threads: int = 1, instruction_set: str = "") -> NativeTrunk:
    """A trunk whose logits after token t are `logits[t]`, bit for bit.

    Args:
        logits: [T, V]; if T is more than 1, V is a multiple of 32 and at least T. Later tokens have zeros.
        threads, instruction_set: as in `headstart.runtime.native.load_trunk`.
    """
    num_rows, vocab_size = logits.shape
    if num_rows == 1:  # any width: a product of nothing, and a bias
        zero = make_tensor("weight", np.zeros((vocab_size, 32)))
        return make_product_trunk(
            zero, np.zeros((1, 32)), bias=logits[0].tolist(), threads=threads, instruction_set=instruction_set
        )
    rows = np.zeros((vocab_size, vocab_size), np.float32)
    rows[:num_rows] = logits
    build = Builder()
    program = build.finish(build.select_wanted(build.embed("inputs", vocab_size)))
    native = _native.Program(threads, instruction_set)
    matrices = {"inputs": _add(native, make_tensor("inputs", rows), "")}
    return _finished(native, program, matrices, {}, vocab_size)


def _add(native: _native.Program, tensor: Tensor, target: str) -> int:
    num_outputs, num_inputs = tensor.shape
    index: int = native.add_matrix(tensor.kind, target, num_outputs, num_inputs, tensor.data, None)
    return index


def _finished(
    native: _native.Program, program: Program, matrices: dict[str, int], vectors: dict[str, int], vocab_size: int
) -> NativeTrunk:
    """The trunk, with a cache of one sequence's pages; nothing in it reads them."""
    config = TrunkConfig(
        family="test", vocab_size=vocab_size, hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16,
        intermediate_size=32, norm_eps=1e-5, max_context=_MAX_CONTEXT, rotary=RotaryConfig(theta=1e4, dim=16),
        windows=(0,),
    )  # fmt: skip
    native.finish(
        logits=compile_program(program, native, matrices, vectors),
        inverse_frequencies=[1.0] * 8,
        rotary_factor=1.0,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        half_cache=False,
        max_context=config.max_context,
    )
    trunk = NativeTrunk(native, config)
    trunk.make_cache(_MAX_CONTEXT // PAGE_TOKENS)
    return trunk
