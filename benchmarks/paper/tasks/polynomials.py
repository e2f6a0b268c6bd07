"""Arithmetic with polynomials over few numbers: Fp[X]/(X^n).

A polynomial is its coefficients, the constant first: "304" is 3 + 4 X^2. An item is an expression and its value, such
as, over F7, "(304+125)=422" or "-(110*001)=006". Operations are negation, sum, product, and composition, written @:
f @ g is the representative f of degree below n at g. Expressions are random trees of as many operations as was asked. A
sheet to train on has several items, a line each.

Source: Gloeckle et al. 2404.19737, section 4.2, which has F7[X]/(X^5).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from paper.tasks.item import Item, is_held_out

SHEET_ITEMS = 8

_HELD_OUT_ONE_OF = 4
_BINARY = "+*@"

Polynomial = tuple[int, ...]
"""Coefficients of a ring, the constant first; as many as it has terms."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Fp[X]/(X^n).

    Attributes:
        modulus: p, a prime of one digit; coefficients are at least 0 and below it.
        terms: n; powers from it on are zero.
    """

    modulus: int
    terms: int

    def add(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """The sum."""
        return self._reduced(a + b for a, b in zip(left, right, strict=True))

    def negate(self, value: Polynomial) -> Polynomial:
        """What gives zero with it."""
        return self._reduced(-a for a in value)

    def multiply(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """The product."""
        product = [0] * self.terms
        for power, factor in enumerate(left):
            for other, coefficient in enumerate(right[: self.terms - power]):
                product[power + other] += factor * coefficient
        return self._reduced(iter(product))

    def compose(self, outer: Polynomial, inner: Polynomial) -> Polynomial:
        """The outer one at the inner one, by Horner's rule."""
        value: Polynomial = (0,) * self.terms
        for coefficient in reversed(outer):
            value = self.add(self.multiply(value, inner), (coefficient, *(0,) * (self.terms - 1)))
        return value

    def draw(self, generator: random.Random) -> Polynomial:
        """Any, all alike."""
        return tuple(generator.randrange(self.modulus) for _ in range(self.terms))

    def _reduced(self, coefficients: Iterator[int]) -> Polynomial:
        return tuple(coefficient % self.modulus for coefficient in coefficients)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression and what it comes to.

    Attributes:
        text: of it.
        likes: one text for all that differ from it only in the order of a sum's or a product's sides.
        value: of it.
    """

    text: str
    likes: str
    value: Polynomial


def expression(generator: random.Random, ring: Ring, operations: int) -> Expression:
    """Any expression of so many operations."""
    if operations == 0:
        value = ring.draw(generator)
        return Expression(_spelled(value), _spelled(value), value)
    operation = generator.choice("-" + _BINARY)
    if operation == "-":
        inner = expression(generator, ring, operations - 1)
        return Expression(f"-{inner.text}", f"-{inner.likes}", ring.negate(inner.value))
    on_the_left = generator.randrange(operations)
    left = expression(generator, ring, on_the_left)
    right = expression(generator, ring, operations - 1 - on_the_left)
    likes = (left.likes, right.likes) if operation == "@" else sorted((left.likes, right.likes))
    apply = {"+": ring.add, "*": ring.multiply, "@": ring.compose}[operation]
    return Expression(
        text=f"({left.text}{operation}{right.text})",
        likes=f"({operation.join(likes)})",
        value=apply(left.value, right.value),
    )


def training_sheet(number: int, ring: Ring, most_operations: int) -> Item:
    """Items to train on, each of 1 to `most_operations` operations."""
    generator = random.Random(f"train {number}")
    items = (_drawn(generator, ring, 1, most_operations, held_out=False) for _ in range(SHEET_ITEMS))
    return Item(prompt="\n".join(item.text for item in items), answer="")


def held_out_item(number: int, ring: Ring, operations: int) -> Item:
    """An item that is on no `training_sheet`, with the sides of its sums and products in no other order either."""
    return _drawn(random.Random(f"test {operations} {number}"), ring, operations, operations, held_out=True)


def _drawn(generator: random.Random, ring: Ring, fewest: int, most: int, *, held_out: bool) -> Item:
    while True:
        operations = generator.randint(fewest, most)
        drawn = expression(generator, ring, operations)
        if is_held_out(drawn.likes, _HELD_OUT_ONE_OF) == held_out:
            group = f"{operations} operation{'s' * (operations > 1)}"
            return Item(prompt=f"{drawn.text}=", answer=_spelled(drawn.value), group=group)


def _spelled(value: Polynomial) -> str:
    return "".join(map(str, value))
