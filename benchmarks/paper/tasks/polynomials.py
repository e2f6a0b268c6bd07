"""Arithmetic with polynomials over seven numbers: F7[X]/(X^3).

A polynomial is its three coefficients, the constant first: "304" is 3 + 4 X^2. An item is an expression and its value,
such as "(304+125)=422" or "-(110*001)=006". Operations are negation, sum, product, and composition, written @: f @ g is
the representative f of degree below 3 at g. Expressions have as many operations as was asked, in a random tree.

Source: Gloeckle et al. 2404.19737, section 4.2, which has X^5 in place of X^3.
"""

from __future__ import annotations

import random

from paper.tasks.item import Item, is_held_out

MODULUS, TERMS = 7, 3
_HELD_OUT_ONE_OF = 20
_BINARY = "+*@"

Polynomial = tuple[int, ...]
"""Coefficients, the constant first, each at least 0 and below `MODULUS`; `TERMS` of them."""


def add(left: Polynomial, right: Polynomial) -> Polynomial:
    """The sum."""
    return tuple((a + b) % MODULUS for a, b in zip(left, right, strict=True))


def negate(value: Polynomial) -> Polynomial:
    """What gives zero with it."""
    return tuple(-a % MODULUS for a in value)


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product, without the powers from `TERMS` on."""
    product = [0] * TERMS
    for power, factor in enumerate(left):
        for other, coefficient in enumerate(right[: TERMS - power]):
            product[power + other] += factor * coefficient
    return tuple(coefficient % MODULUS for coefficient in product)


def compose(outer: Polynomial, inner: Polynomial) -> Polynomial:
    """The outer one at the inner one, by Horner's rule."""
    value: Polynomial = (0,) * TERMS
    for coefficient in reversed(outer):
        value = add(multiply(value, inner), (coefficient, *(0,) * (TERMS - 1)))
    return value


def expression(generator: random.Random, operations: int) -> tuple[str, Polynomial]:
    """An expression of so many operations, and its value."""
    if operations == 0:
        value = tuple(generator.randrange(MODULUS) for _ in range(TERMS))
        return _spelled(value), value
    operation = generator.choice("-" + _BINARY)
    if operation == "-":
        text, value = expression(generator, operations - 1)
        return f"-{text}", negate(value)
    on_the_left = generator.randrange(operations)
    left_text, left = expression(generator, on_the_left)
    right_text, right = expression(generator, operations - 1 - on_the_left)
    apply = {"+": add, "*": multiply, "@": compose}[operation]
    return f"({left_text}{operation}{right_text})", apply(left, right)


def training_item(number: int, most_operations: int) -> Item:
    """An item to train on, of 1 to `most_operations` operations."""
    generator = random.Random(f"train {number}")
    while True:
        operations = generator.randint(1, most_operations)
        item = _item(generator, operations)
        if not is_held_out(item.prompt, _HELD_OUT_ONE_OF):
            return item


def held_out_item(number: int, operations: int) -> Item:
    """An item that no `training_item` is."""
    generator = random.Random(f"test {operations} {number}")
    while True:
        item = _item(generator, operations)
        if is_held_out(item.prompt, _HELD_OUT_ONE_OF):
            return item


def _item(generator: random.Random, operations: int) -> Item:
    text, value = expression(generator, operations)
    return Item(prompt=f"{text}=", answer=_spelled(value), group=f"{operations} operation{'s' * (operations > 1)}")


def _spelled(value: Polynomial) -> str:
    return "".join(map(str, value))
