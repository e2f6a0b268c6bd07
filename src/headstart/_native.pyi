"""The native core as Python sees it. `runtime/native.py` wraps it; nothing else should need it.

A program is built by adding matrices, vectors, registers and operations, is
closed by `finish`, gets a cache by `make_cache`, and then runs. Misuse raises
ValueError and changes nothing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class LawError(ValueError):
    """The parameters of a sampling law leave nothing to choose, overflow, or name unknown ids."""

class LogitsError(Exception):
    """A logit is NaN or +infinity."""

def usable_cores() -> int:
    """Cores that this process may use at once, by its affinity and its container's quota."""

def container_limits(root: str = "") -> tuple[float, int]:
    """Cores and bytes of memory that control groups leave this process, 0 for no limit; `root` is for tests."""

def instruction_sets() -> list[str]:
    """Kernel sets that this machine can run, best first."""

class Chooser:
    """The sampling law of one sequence (`decoding/law.py` says what it means)."""

    def __init__(
        self,
        *,
        vocab_size: int,
        seed: int,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        bias: Sequence[tuple[int, float]],
        allowed: Sequence[int],
        end_tokens: Sequence[int],
        min_tokens: int,
        num_logprobs: int,
        prompt: Sequence[int],
    ) -> None: ...
    def extend(self, tokens: Sequence[int], /) -> None: ...

class MemoryReader:
    """Memory to be read, and the threads that read it."""

    def __init__(self, num_threads: int, instruction_set: str, num_bytes: int, /) -> None: ...
    def time(self) -> float:
        """Seconds to read it once."""

class Program:
    """A model's operations, weights and cache, and the threads that run them."""

    def __init__(self, num_threads: int, instruction_set: str, /) -> None:
        """An empty instruction set's name takes the best, or what HEADSTART_ISA names."""

    @staticmethod
    def beside(other: Program, /) -> Program:
        """An empty one on the same threads, with weights of its own."""

    @staticmethod
    def over(other: Program, /) -> Program:
        """An empty one over the same weights, by the same indices."""

    @property
    def instruction_set(self) -> str: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    def take_profile(self) -> tuple[float, float, float]: ...
    def add_matrix(
        self,
        kind: str,
        target: str,
        n: int,
        k: int,
        data: NDArray[np.uint8],
        row_order: NDArray[np.int32] | None,
    ) -> int: ...
    def unpack_row(self, matrix: int, row: int, /) -> NDArray[np.float32]: ...
    def add_vector(self, values: NDArray[np.float32], /) -> int: ...
    def borrow_matrix(self, owner: Program, index: int, /) -> int:
        """The same memory under an index of this program's weights."""

    def borrow_vector(self, owner: Program, index: int, /) -> int: ...
    def add_register(self, width: int, wanted_rows_only: bool) -> int: ...
    def embed(self, out: int, matrix: int, /) -> None: ...
    def state(self, out: int, offset: int, /) -> None:
        """What was kept for the token before, from float `offset` on; zeros before the first."""

    def keep(self, x: int, offset: int, /) -> None:
        """Keep it for the rows that follow, at float `offset`."""

    def copy(self, out: int, x: int, offset: int, /) -> None:
        """Into a part of a wider register."""

    def norm(self, out: int, x: int, vector: int, eps: float, span: int, /) -> None: ...
    def linear(self, x: int, parts: Sequence[tuple[int, int, int, bool]], /) -> None:
        """Parts are (matrix, out, bias vector or -1, whether it adds to what `out` holds)."""

    def rotate(self, x: int, head_dim: int, /) -> None: ...
    def attention(
        self,
        out: int,
        q: int,
        k: int,
        v: int,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        window: int,
        scale: float,
        /,
    ) -> None: ...
    def silu(self, out: int, x: int, /) -> None: ...
    def gate(self, out: int, gate: int, up: int, /) -> None: ...
    def add(self, out: int, x: int, y: int, /) -> None: ...
    def select(self, out: int, x: int, /) -> None: ...
    def finish(
        self,
        *,
        logits: int,
        inverse_frequencies: Sequence[float],
        rotary_factor: float,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        half_cache: bool,
        max_context: int,
    ) -> None: ...
    def make_cache(self, num_pages: int, /) -> None: ...
    def forward(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        parents: NDArray[np.int32],
        sequences: NDArray[np.int32],
        page_tables: Sequence[NDArray[np.int32]],
        committed: NDArray[np.int32],
        wanted: NDArray[np.int32],
    ) -> None: ...
    def logits(self, wanted_index: int, /) -> NDArray[np.float32]: ...
    def choose(
        self,
        rows: Sequence[int],
        choosers: Sequence[Chooser],
        positions: Sequence[int],
        paths: Sequence[Sequence[int]],
        /,
    ) -> tuple[list[int], list[tuple[float, list[tuple[int, float]]] | None]]: ...
    def taps(self, page_table: NDArray[np.int32], first_slot: int, num_slots: int) -> NDArray[np.float32]: ...
    def move(self, page_table: NDArray[np.int32], sources: Sequence[int], destinations: Sequence[int]) -> None: ...

DraftJob = tuple[NDArray[np.int32], NDArray[np.int32], int, Chooser | None, int, int, int, float, float]
"""page table, tokens, first, chooser, max_nodes, max_depth, breadth, min_path_probability, min_parent_probability
(`HeadsRequest`)"""

class Heads:
    """Programs that run beside a trunk's, on its threads, and draft trees (`runtime/native_heads.py`)."""

    def __init__(
        self,
        *,
        trunk: Program,
        stages: Sequence[tuple[Program, int, int, bool]],
        recurrent: bool,
        vocabulary: Sequence[int],
    ) -> None:
        """Stages are (program, store it reads, store it writes or -1, whether it runs on every token of the text)."""

    @property
    def max_depth(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    def draft(self, jobs: Sequence[DraftJob], /) -> list[tuple[list[int], list[int], list[float]]]: ...
    def logits(self, job: DraftJob, continuation: NDArray[np.int32], /) -> NDArray[np.float32]: ...
