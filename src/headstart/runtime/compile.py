"""From an architecture's program to the native core's operation list.

Values become registers, reused once nothing reads them. Products of the same
input become one operation, so that threads share out all their tiles at once,
and a sum with a product's result becomes part of that product. What is kept for
later rows is copied out as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from headstart._native import Program as NativeProgram
from headstart.architectures.program import (
    Add,
    Attention,
    Concat,
    Embed,
    Linear,
    Operation,
    Program,
    RmsNorm,
    Rotary,
    SelectWanted,
    Silu,
    SiluGate,
    State,
    Value,
)

# operations whose result may lie where their first input lay
_IN_PLACE = (Rotary, Silu, Add)


def compile_program(program: Program, native: NativeProgram, matrices: dict[str, int], vectors: dict[str, int]) -> int:
    """Append the program's operations to `native`.

    Args:
        matrices: native index of each matrix, by weight name.
        vectors: the same for norms and biases.

    Returns:
        The register that holds the logits.
    """
    return _Compiler(program, native, matrices, vectors).run()


def inputs(operation: Operation) -> tuple[Value, ...]:
    """The values an operation reads."""
    match operation:
        case Embed() | State():
            return ()
        case Concat():
            return operation.parts
        case RmsNorm() | Linear() | Rotary() | Silu() | SelectWanted():
            return (operation.x,)
        case Attention():
            return (operation.q, operation.k, operation.v)
        case SiluGate():
            return (operation.gate, operation.up)
        case Add():
            return (operation.x, operation.y)


class _Registers:
    """Native registers by value, with those no longer needed handed out again."""

    def __init__(self, native: NativeProgram) -> None:
        self._native = native
        self._of_value: dict[Value, int] = {}
        self._free: dict[tuple[int, bool], list[int]] = {}

    def __getitem__(self, value: Value) -> int:
        return self._of_value[value]

    def create(self, value: Value) -> int:
        free = self._free.get((value.width, value.wanted_only))
        register = free.pop() if free else self._native.add_register(value.width, value.wanted_only)
        self._of_value[value] = register
        return register

    def rename(self, old: Value, new: Value) -> int:
        register = self._of_value.pop(old)
        self._of_value[new] = register
        return register

    def release(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self._of_value:
                self._free.setdefault((value.width, value.wanted_only), []).append(self._of_value.pop(value))


class _Compiler:
    def __init__(
        self, program: Program, native: NativeProgram, matrices: dict[str, int], vectors: dict[str, int]
    ) -> None:
        self._operations = program.operations
        self._logits = program.logits
        self._native = native
        self._matrices = matrices
        self._vectors = vectors
        self._registers = _Registers(native)
        self._last_use = {
            value: index for index, operation in enumerate(program.operations) for value in inputs(operation)
        }
        self._last_use[program.logits] = len(program.operations)
        widths = [value.width for value in program.kept]
        self._kept = list(zip(program.kept, accumulate([0, *widths[:-1]]), strict=True)) if widths else []

    def run(self) -> int:
        index = 0
        while index < len(self._operations):
            operation = self._operations[index]
            if isinstance(operation, Linear):
                end = self._emit_linear(index)
            else:
                self._emit(operation, index)
                end = index + 1
            self._keep(self._operations[index:end])
            for done in range(index, end):
                self._registers.release(v for v in inputs(self._operations[done]) if self._last_use[v] < end)
            index = end
        return self._registers[self._logits]

    def _keep(self, done: Sequence[Operation]) -> None:
        for operation in done:
            for value, offset in self._kept:
                if value == operation.out:
                    self._native.keep(self._registers[value], offset)

    def _dies(self, value: Value, index: int) -> bool:
        return self._last_use[value] <= index

    def _emit(self, operation: Operation, index: int) -> None:
        native, registers = self._native, self._registers
        sources = inputs(operation)
        if isinstance(operation, _IN_PLACE) and self._dies(sources[0], index):
            out = registers.rename(sources[0], operation.out)
            first = out
        else:
            out = registers.create(operation.out)
            first = registers[sources[0]] if sources else -1
        match operation:
            case Embed():
                native.embed(out, self._matrices[operation.weight])
            case RmsNorm():
                native.norm(out, first, self._vectors[operation.weight], operation.eps, operation.span)
            case State():
                native.state(out, operation.offset)
            case Concat():
                offset = 0
                for part in operation.parts:
                    native.copy(out, registers[part], offset)
                    offset += part.width
            case Rotary():
                if out != first:
                    raise AssertionError("rotation works in place, so its input must not be read again")
                native.rotate(out, operation.head_dim)
            case Attention():
                native.attention(
                    out, first, registers[operation.k], registers[operation.v], operation.layer, operation.num_heads,
                    operation.num_kv_heads, operation.head_dim, operation.window, operation.scale,
                )  # fmt: skip
            case Silu():
                native.silu(out, first)
            case SiluGate():
                native.gate(out, first, registers[operation.up])
            case Add():
                native.add(out, first, registers[operation.y])
            case SelectWanted():
                native.select(out, first)

    def _emit_linear(self, begin: int) -> int:
        """Emits the run of products that share the input of the one at `begin`; returns its end."""
        operations = self._operations
        x = operations[begin].x  # type: ignore[union-attr]
        kept = [value for value, _ in self._kept]
        end = begin
        parts: list[tuple[int, int, int, bool]] = []
        while end < len(operations) and isinstance(product := operations[end], Linear) and product.x == x:
            bias = -1 if product.bias is None else self._vectors[product.bias]
            total = operations[end + 1] if end + 1 < len(operations) else None
            if (
                end == begin
                and isinstance(total, Add)
                and total.y == product.out
                and total.x != x
                and self._dies(total.x, end + 1)
                and self._dies(product.out, end + 1)
                and product.out not in kept
            ):
                out = self._registers.rename(total.x, total.out)
                self._native.linear(self._registers[x], [(self._matrices[product.weight], out, bias, True)])
                return end + 2
            out = self._registers.create(product.out)
            parts.append((self._matrices[product.weight], out, bias, False))
            end += 1
        self._native.linear(self._registers[x], parts)
        return end
