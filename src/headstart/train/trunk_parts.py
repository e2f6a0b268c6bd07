"""A trunk's program in parts: each block by itself, so that it can be a module with weights and hooks of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from headstart.architectures.program import Operation, Program, Value
from headstart.architectures.weights import wanted_shapes

_BLOCK = re.compile(r"layers\.\d+\.")


@dataclass(frozen=True, slots=True)
class Part:
    """Operations that follow each other.

    Attributes:
        operations: in order.
        weights: names of those that they read.
        reads: values of earlier parts that they read.
        gives: values that later parts read, or the program keeps.
        is_block: whether they are one block of the trunk.
    """

    operations: tuple[Operation, ...]
    weights: tuple[str, ...]
    reads: tuple[Value, ...]
    gives: tuple[Value, ...]
    is_block: bool


def split_program(program: Program) -> list[Part]:
    """The parts of a program up to its unembedding: what stands before its blocks, each block, what follows."""
    operations = program.operations[:-1]
    groups = [list(group) for group in _groups(operations)]
    parts: list[Part] = []
    for index, group in enumerate(groups):
        made = {operation.out for operation in group}
        later = {value for other in groups[index + 1 :] for operation in other for value in _read_by(operation)}
        wanted = later | set(program.kept) | set(_read_by(program.operations[-1]))
        read = dict.fromkeys(value for operation in group for value in _read_by(operation) if value not in made)
        weights = tuple(wanted_shapes(Program(tuple(group), group[-1].out)))
        parts.append(
            Part(
                operations=tuple(group),
                weights=weights,
                reads=tuple(read),
                gives=tuple(operation.out for operation in group if operation.out in wanted),
                is_block=bool(weights) and _block_of(group[0]) is not None,
            )
        )
    return parts


def _groups(operations: tuple[Operation, ...]) -> Iterator[list[Operation]]:
    """Operations with a block's weights, and those without weights between them, belong together."""
    group: list[Operation] = []
    current: str | None = None
    for operation in operations:
        weights = list(wanted_shapes(Program((operation,), operation.out)))
        block = _block_of(operation) if weights else current
        if group and block != current:
            yield group
            group = []
        group.append(operation)
        current = block
    yield group


def _block_of(operation: Operation) -> str | None:
    for name in wanted_shapes(Program((operation,), operation.out)):
        if found := _BLOCK.match(name):
            return found[0]
    return None


def _read_by(operation: Operation) -> list[Value]:
    found: list[Value] = []
    for field in fields(operation):
        value = getattr(operation, field.name)
        if field.name != "out":
            found += [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Value)]
    return found
