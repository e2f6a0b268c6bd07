"""The CPU runtime: a checkpoint's program and weights in the native core."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headstart import _native
from headstart.architectures.config import TrunkConfig
from headstart.architectures.decoder import decoder_program
from headstart.architectures.program import Embed, Linear, Program
from headstart.architectures.reading import read_config
from headstart.architectures.rotary import inverse_frequencies
from headstart.architectures.weights import PlacedWeight, place_weights
from headstart.checkpoint import Checkpoint
from headstart.errors import CapacityError, ConfigError, HeadstartError, UnsupportedError
from headstart.records import SamplingParams, TokenLogprobs
from headstart.runtime.compile import compile_program
from headstart.runtime.native_weights import WeightFormat, WeightIndices, add_tensor
from headstart.runtime.protocol import Choice, Chooser, Rows

__all__ = ["CacheFormat", "NativeTrunk", "PassProfile", "WeightFormat", "load_trunk"]

CacheFormat = Literal["auto", "f16", "f32"]


def load_trunk(
    checkpoint: Checkpoint,
    *,
    threads: int | None = None,
    weights: WeightFormat = "stored",
    cache: CacheFormat = "auto",
    taps: Sequence[int] = (),
    instruction_set: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> NativeTrunk:
    """A trunk that runs on this machine's CPU.

    Args:
        checkpoint: the opened model.
        threads: how many work together; by default as many as the process may use at once.
        weights: "stored" keeps the file's formats; "int8" and "int8-row"
            quantise every matrix on the way in, by groups of 32 inputs or by
            output (a second rounding, if the file is quantised already); "bf16"
            and "f32" expand every matrix (slow; "f32" is a reference).
        cache: format of keys and values; "auto" is f32 for f32 weights, else f16.
        taps: layers whose outputs it keeps for heads, ascending: 0 is the embedding, `num_layers` what the final
            norm gets. They take cache memory and change no logit.
        instruction_set: a kernel set by name instead of the best one.
        progress: called with the share of weights loaded, 0 to 1.

    Raises:
        ConfigError: an argument that is not allowed.
        CheckpointError: a tensor is missing, misshapen or has no place.
        UnsupportedError: the family, a feature, or the instruction set.
    """
    for name, value, allowed in (("weights", weights, WeightFormat), ("cache", cache, CacheFormat)):
        if value not in get_args(allowed):
            raise ConfigError(f"{name} = {value!r}: it must be one of {', '.join(get_args(allowed))}.")
    if threads is not None and not 1 <= threads <= 1024:
        raise ConfigError(f"threads = {threads}: it must be between 1 and 1024.")
    family, config = read_config(checkpoint)
    _check_taps(taps, config)
    program = decoder_program(config, taps)
    placed = place_weights(checkpoint, family, config, program)
    try:
        threads = threads or _native.usable_cores()
        native = _native.Program(threads, instruction_set or "")
    except ValueError as error:
        raise UnsupportedError(f"{str(error).capitalize()}.") from None
    except RuntimeError as error:
        raise CapacityError(f"The system does not give {threads} threads ({error}). Ask for fewer.") from None
    indices = _load_weights(native, program, placed, weights, progress)
    frequencies, rotary_factor = inverse_frequencies(config.rotary)
    half_cache = cache == "f16" or (cache == "auto" and not _runs_in_f32(program, placed, weights))
    native.finish(
        logits=compile_program(program, native, indices.matrices, indices.vectors),
        inverse_frequencies=frequencies.tolist(),
        rotary_factor=rotary_factor,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        half_cache=half_cache,
        max_context=config.max_context,
    )
    return NativeTrunk(native, config, taps=tuple(taps), indices=indices, weights=weights, half_cache=half_cache)


def _check_taps(taps: Sequence[int], config: TrunkConfig) -> None:
    if list(taps) != sorted(set(taps)) or any(not 0 <= tap <= config.num_layers for tap in taps):
        raise ConfigError(
            f"taps = {list(taps)}: they must ascend, from 0 (the embedding) to {config.num_layers} (the last layer)."
        )


def _matrix_names(program: Program) -> list[str]:
    names = dict.fromkeys(op.weight for op in program.operations if isinstance(op, (Embed, Linear)))
    return list(names)


def _runs_in_f32(program: Program, placed: dict[str, PlacedWeight], weights: WeightFormat) -> bool:
    if weights == "f32":
        return True
    return weights == "stored" and all(placed[name].tensor.kind == "F32" for name in _matrix_names(program))


def _load_weights(
    native: _native.Program,
    program: Program,
    placed: dict[str, PlacedWeight],
    weights: WeightFormat,
    progress: Callable[[float], None] | None,
) -> WeightIndices:
    names = _matrix_names(program)
    total = sum(placed[name].tensor.data.nbytes for name in names)
    matrices: dict[str, int] = {}
    loaded = 0
    for name in names:
        matrices[name] = add_tensor(native, placed[name].tensor, weights, placed[name].row_order)
        loaded += placed[name].tensor.data.nbytes
        if progress is not None:
            progress(loaded / total)
    vectors: dict[str, int] = {}
    for name, weight in placed.items():
        if name not in matrices:
            values = weight.tensor.dequantize()
            ordered = values if weight.row_order is None else values[weight.row_order]
            vectors[name] = native.add_vector(np.ascontiguousarray(ordered))
    return WeightIndices(matrices, vectors)


@dataclass(frozen=True, slots=True)
class PassProfile:
    """Seconds in the parts of passes, the waiting of threads for each other included.

    Attributes:
        products_s: matrix products.
        attention_s: attention.
        rest_s: norms, rotation, quantisation of rows, gates, sums.
    """

    products_s: float
    attention_s: float
    rest_s: float


class NativeTrunk:
    """`runtime.protocol.Trunk` over the native core. Not for use from several threads at once.

    Attributes:
        config: sizes and choices of the model.
        tap_layers: layers whose outputs it keeps.
        native: the core's program, and where its weights are: for heads, which borrow them.
        indices: see `native`.
        weights: the format they were loaded in.
        half_cache: whether keys and values are f16, and taps bf16.
        native_s: seconds spent inside the core so far; the rest of a step is Python's.
    """

    def __init__(
        self,
        native: _native.Program,
        config: TrunkConfig,
        *,
        taps: tuple[int, ...] = (),
        indices: WeightIndices | None = None,
        weights: WeightFormat = "stored",
        half_cache: bool = False,
    ) -> None:
        """Wrap a finished native program."""
        self.native = native
        self.config = config
        self.tap_layers = taps
        self.indices = indices or WeightIndices({}, {})
        self.weights = weights
        self.half_cache = half_cache
        self.vocab_size = config.vocab_size
        self.max_context = config.max_context
        self.native_s = 0.0

    @property
    def instruction_set(self) -> str:
        """The kernels that run: "amx", "avx512vnni", "avx2" or "portable"."""
        return str(self.native.instruction_set)

    @property
    def num_threads(self) -> int:
        """Threads that work together."""
        return int(self.native.num_threads)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass over one row reads."""
        return int(self.native.weight_bytes)

    def take_profile(self) -> PassProfile:
        """Where passes spent their time since the last call."""
        return PassProfile(*self.native.take_profile())

    def read_bandwidth(self, num_bytes: int) -> float:
        """Bytes a second at which this trunk's threads read memory: the median of a few tries.

        Args:
            num_bytes: read in order, each byte once; to compare with a pass, `weight_bytes`.
        """
        reader = _native.MemoryReader(self.num_threads, self.instruction_set, num_bytes)
        return num_bytes / statistics.median(reader.time() for _ in range(5))

    def make_cache(self, num_pages: int) -> None:
        """See `Trunk.make_cache`."""
        try:
            self.native.make_cache(num_pages)
        except (MemoryError, TypeError):  # more pages than memory holds, or than a 32-bit number counts
            raise CapacityError(
                f"A cache of {num_pages} pages needs {num_pages * self.page_bytes() / 2**20:.0f} MiB, which cannot be "
                "had; ask for fewer cached tokens."
            ) from None

    def page_bytes(self) -> int:
        """See `Trunk.page_bytes`."""
        return int(self.native.page_bytes)

    def forward(self, rows: Rows) -> None:
        """See `Trunk.forward`."""
        started = time.perf_counter()
        self.native.forward(
            rows.tokens, rows.positions, rows.parents, rows.sequences, rows.page_tables, rows.committed, rows.wanted
        )
        self.native_s += time.perf_counter() - started

    def logits(self, wanted_index: int) -> NDArray[np.float32]:
        """See `Trunk.logits`."""
        return self.native.logits(wanted_index)

    def make_chooser(
        self, params: SamplingParams, seed: int, prompt: Sequence[int], end_tokens: Sequence[int]
    ) -> Chooser:
        """See `Trunk.make_chooser`."""
        try:
            return _native.Chooser(
                vocab_size=self.vocab_size,
                seed=seed,
                temperature=params.temperature,
                top_k=min(params.top_k, self.vocab_size),
                top_p=params.top_p,
                min_p=params.min_p,
                repetition_penalty=params.repetition_penalty,
                presence_penalty=params.presence_penalty,
                frequency_penalty=params.frequency_penalty,
                bias=list(params.logit_bias.items()),
                allowed=list(params.allowed_tokens or ()),
                end_tokens=list(end_tokens),
                min_tokens=params.min_tokens,
                num_logprobs=-1 if params.logprobs is None else params.logprobs,
                prompt=list(prompt),
            )
        except _native.LawError as error:
            raise ConfigError(str(error)) from None

    def choose(self, choices: Sequence[Choice]) -> tuple[list[int], list[TokenLogprobs | None]]:
        """See `Trunk.choose`."""
        rows = [choice.row for choice in choices]
        choosers = [choice.chooser for choice in choices]
        positions = [choice.position for choice in choices]
        paths = [choice.path for choice in choices]
        started = time.perf_counter()
        try:
            # all choosers were made by make_chooser
            tokens, logprobs = self.native.choose(rows, choosers, positions, paths)  # type: ignore[arg-type]
        except _native.LawError as error:
            raise ConfigError(str(error)) from None
        except _native.LogitsError as error:
            raise HeadstartError(str(error)) from None
        self.native_s += time.perf_counter() - started
        return tokens, [None if found is None else TokenLogprobs(found[0], tuple(found[1])) for found in logprobs]

    def move(self, page_table: NDArray[np.int32], sources: Sequence[int], destinations: Sequence[int]) -> None:
        """See `Trunk.move`."""
        self.native.move(page_table, list(sources), list(destinations))

    def taps(self, page_table: NDArray[np.int32], first_slot: int, num_slots: int) -> NDArray[np.float32]:
        """What was kept for tokens of a sequence [num_slots, num_taps * hidden_size]: each one's layers side by side.

        Args:
            page_table: int32, of the sequence.
            first_slot: slot of the first token; a committed token lies at the slot of its position.
            num_slots: how many, all run before.
        """
        return self.native.taps(page_table, first_slot, num_slots)
