"""Heads in the native core: their programs on the trunk's threads, over their own weights and what they borrow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from headstart import _native
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.names import stored_name
from headstart.architectures.program import Program
from headstart.architectures.rotary import inverse_frequencies
from headstart.architectures.weights import wanted_shapes
from headstart.checkpoint import Checkpoint, Tensor
from headstart.errors import CapacityError, CheckpointError, ConfigError
from headstart.records import Tree
from headstart.runtime.compile import compile_program
from headstart.runtime.heads_protocol import HeadsRequest
from headstart.runtime.heads_weights import BORROWED, own_shapes, require_weights
from headstart.runtime.native import NativeTrunk
from headstart.runtime.native_weights import WeightIndices, add_tensor

HeadsWeightFormat = Literal["int8", "bf16", "f32"]
Floats = NDArray[np.float32]


def load_heads(
    trunk: NativeTrunk,
    trunk_checkpoint: Checkpoint,
    config: HeadsConfig,
    weights: Mapping[str, Floats] | Mapping[str, Tensor],
    vocabulary: NDArray[np.int32] | None = None,
    weight_format: HeadsWeightFormat = "int8",
) -> NativeHeads:
    """Heads that run beside a trunk.

    Args:
        trunk: loaded with the taps that the heads read.
        trunk_checkpoint: the file it was loaded from; a reduced unembedding is taken from there.
        config: of the heads.
        weights: their own, by name, [out, in] for matrices: float32 arrays, or tensors of a heads file, of which
            quantised ones stay as they are.
        vocabulary: int32 [draft_vocab_size], the ids that they guess, if not all of the trunk's.
        weight_format: of their own matrices; "int8" rounds by groups of 32 inputs. Borrowed ones stay as the trunk
            has them; the rows of a reduced unembedding as the file has them, or, of a float file, in this format.

    Raises:
        ConfigError: config and trunk, or vocabulary, do not fit together.
        CheckpointError: a weight is missing, misshapen or one too many.
        CapacityError: the memory is not to be had.
    """
    if weight_format not in get_args(HeadsWeightFormat):
        raise ConfigError(
            f"weight_format = {weight_format!r}: it must be one of {', '.join(get_args(HeadsWeightFormat))}."
        )
    program = heads_program(config, trunk.config)
    _check_taps(trunk, config)
    _check_vocabulary(config, trunk.vocab_size, vocabulary)
    shapes: dict[str, tuple[int, ...]] = {}
    for stage in program.stages:
        shapes |= wanted_shapes(stage.program)
    require_weights(own_shapes(program), {name: weight.shape for name, weight in weights.items()})
    loader = _Loader(trunk, trunk_checkpoint, vocabulary, weight_format)
    for name in shapes:
        if name.startswith(BORROWED):
            loader.borrow(name)
        else:
            loader.add_own(_as_tensor(name, weights[name]))
    stages = [
        (loader.compile(stage.program, program.num_layers), stage.reads, -1 if stage.writes is None else stage.writes,
         stage.on_text)
        for stage in program.stages
    ]  # fmt: skip
    native = _native.Heads(
        trunk=trunk.native,
        stages=stages,
        recurrent=program.recurrent,
        vocabulary=[] if vocabulary is None else vocabulary.tolist(),
    )
    follows_text = any(stage.on_text for stage in program.stages)
    return NativeHeads(
        native,
        [stage[0].weight_bytes for stage in stages],
        follows_text=follows_text,
        recurrent=program.recurrent,
    )


def _check_taps(trunk: NativeTrunk, config: HeadsConfig) -> None:
    if trunk.tap_layers != config.taps:
        raise ConfigError(
            f"The heads read the layers {list(config.taps)} of the trunk, which keeps {list(trunk.tap_layers)}: "
            "load the trunk with these taps."
        )


def _check_vocabulary(config: HeadsConfig, trunk_vocab_size: int, vocabulary: NDArray[np.int32] | None) -> None:
    num_named = 0 if vocabulary is None else len(vocabulary)
    if num_named != config.draft_vocab_size:
        raise ConfigError(
            f"The heads guess {config.draft_vocab_size or 'all'} tokens of the vocabulary, but {num_named} are named."
        )
    if vocabulary is None:
        return
    unknown = vocabulary[(vocabulary < 0) | (vocabulary >= trunk_vocab_size)]
    if len(unknown):
        raise CheckpointError(
            f"The draft vocabulary names the token {unknown[0]}; the trunk's ids are 0 to {trunk_vocab_size - 1}. "
            "The heads were made for another model."
        )
    ids, counts = np.unique(vocabulary, return_counts=True)
    if counts.max(initial=0) > 1:
        raise CheckpointError(f"The draft vocabulary names the token {ids[counts > 1][0]} more than once.")


def _as_tensor(name: str, weight: Floats | Tensor) -> Tensor:
    if isinstance(weight, Tensor):
        return weight
    contiguous = np.ascontiguousarray(weight, np.float32)
    return Tensor(name, contiguous.shape, "F32", contiguous.reshape(-1).view(np.uint8))


class _Loader:
    """Brings weights into the core, each once, and compiles programs over them."""

    def __init__(
        self,
        trunk: NativeTrunk,
        checkpoint: Checkpoint,
        vocabulary: NDArray[np.int32] | None,
        weight_format: HeadsWeightFormat,
    ) -> None:
        self._trunk = trunk
        self._checkpoint = checkpoint
        self._vocabulary = vocabulary
        self._format = weight_format
        self._holder = _native.Program.beside(trunk.native)
        self._indices = WeightIndices({}, {})

    def add_own(self, tensor: Tensor) -> None:
        """A weight of the heads; a matrix if it has two dimensions."""
        if len(tensor.shape) == 1:
            self._indices.vectors[tensor.name] = self._holder.add_vector(tensor.dequantize())
        else:
            self._indices.matrices[tensor.name] = add_tensor(self._holder, tensor, self._format)

    def borrow(self, name: str) -> None:
        """A weight of the trunk."""
        owner, indices = self._trunk.native, self._trunk.indices
        own_name = name.removeprefix(BORROWED)
        if own_name == "unembedding" and self._trunk.config.tied:
            own_name = "embedding"
        if name == "trunk.unembedding" and self._vocabulary is not None:
            self._indices.matrices[name] = self._add_rows_of(own_name, self._vocabulary)
        elif own_name in indices.matrices:
            self._indices.matrices[name] = self._holder.borrow_matrix(owner, indices.matrices[own_name])
        else:
            self._indices.vectors[name] = self._holder.borrow_vector(owner, indices.vectors[own_name])

    def _add_rows_of(self, own_name: str, rows: NDArray[np.int32]) -> int:
        tensor = self._checkpoint.tensors[stored_name(own_name, self._checkpoint.format)]
        weights = self._trunk.weights
        if weights == "stored" and tensor.kind in ("F32", "F16", "BF16"):
            weights = self._format
        return add_tensor(self._holder, tensor, weights, rows)

    def compile(self, program: Program, num_layers: int) -> _native.Program:
        """A finished native program over the weights."""
        native = _native.Program.over(self._holder)
        config = self._trunk.config
        frequencies, rotary_factor = inverse_frequencies(config.rotary)
        native.finish(
            logits=compile_program(program, native, self._indices.matrices, self._indices.vectors),
            inverse_frequencies=frequencies.tolist(),
            rotary_factor=rotary_factor,
            num_layers=num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            half_cache=self._trunk.half_cache,
            max_context=config.max_context,
        )
        return native


class NativeHeads:
    """`runtime.heads_protocol.Heads` over the native core. They share the trunk's threads: one or the other runs.

    Attributes:
        max_depth: depths that can be asked for; of an unrolled module, more than it was trained for.
        follows_text: whether rows of the text have to be run.
        recurrent: whether each depth takes a pass.
        native_s: seconds spent inside the core so far.
    """

    def __init__(
        self, native: _native.Heads, stage_bytes: Sequence[int], *, follows_text: bool, recurrent: bool
    ) -> None:
        """Wrap what `load_heads` made."""
        self._native = native
        self.follows_text, self.recurrent = follows_text, recurrent
        self._stage_bytes = stage_bytes
        self.max_depth = native.max_depth
        self.native_s = 0.0

    def page_bytes(self) -> int:
        """See `Heads.page_bytes`."""
        return self._native.page_bytes

    def draft_bytes(self, depth: int) -> int:
        """See `Heads.draft_bytes`."""
        last = len(self._stage_bytes) - 1
        return sum(self._stage_bytes[min(level, last)] for level in range(min(depth, self.max_depth)))

    def draft(self, requests: Sequence[HeadsRequest]) -> list[Tree]:
        """See `Heads.draft`.

        Raises:
            CapacityError: the memory for the heads' cache is not to be had.
        """
        started = time.perf_counter()
        try:
            trees = self._native.draft([_job(request) for request in requests])
        except MemoryError:
            raise CapacityError("Out of memory for the heads' cache; ask for fewer cached tokens.") from None
        self.native_s += time.perf_counter() - started
        return [Tree(tuple(tokens), tuple(parents), tuple(paths)) for tokens, parents, paths in trees]

    def logits(
        self, page_table: NDArray[np.int32], tokens: NDArray[np.int32], continuation: Sequence[int], *, first: int = 0
    ) -> NDArray[np.float32]:
        """What the heads say at depth 1, 2, ... after a text, if it went on as told [depth, V].

        Args:
            page_table, tokens, first: as in `HeadsRequest`; the text is run as there.
            continuation: tokens after the root. Recurrent heads go one depth deeper for each; others ignore them.
        """
        depth = max(len(continuation) + 1, self.max_depth)
        request = HeadsRequest(page_table=page_table, tokens=tokens, first=first, max_nodes=1, max_depth=depth)
        return self._native.logits(_job(request), np.asarray(continuation, np.int32))


def _job(request: HeadsRequest) -> _native.DraftJob:
    chooser = cast(_native.Chooser | None, request.chooser)  # all were made by the trunk
    return (
        request.page_table, request.tokens, request.first, chooser, request.max_nodes, request.max_depth,
        request.breadth, request.min_path_probability, request.min_parent_probability,
    )  # fmt: skip
