"""The texts that are trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from headstart.errors import ConfigError
from headstart.train.whole_files import write_whole
from paper.budgets import Budget
from paper.tasks import induction, polynomials
from paper.tasks.item import Item, distinct

TRAINED_OPERATIONS = 3
"""Operations of an expression that is trained on, at most."""

CORPORA = ("code", "prose", "polynomials", "induction")


def sources_of(name: str, budget: Budget, folder: Path) -> tuple[str, ...]:
    """Names of the sources of a text; items of made-up tasks are written first.

    Args:
        name: one of `CORPORA`.
        budget: says how much of it.
        folder: where items are written.
    """
    stem, count = name, budget.task_training_items
    match name:
        case "code":
            return budget.code
        case "prose":
            return budget.prose
        case "polynomials":
            ring = _ring(budget)
            draw = partial(polynomials.training_sheet, ring=ring, most_operations=TRAINED_OPERATIONS)
            stem, count = f"{name}-{ring.modulus}-{ring.terms}", count // polynomials.SHEET_ITEMS
        case "induction":
            draw = partial(induction.training_item, rare_one_of=budget.induction_rare_one_of)
            stem = f"{name}-{budget.induction_rare_one_of}"
        case _:
            raise ConfigError(f"corpus {name!r}: there are {', '.join(CORPORA)}.")
    path = folder / f"{stem}-{count}.jsonl"
    if not path.exists():
        write_whole(path, "".join(_lines(distinct(draw, count))))
    return (f"jsonl:{path}",)


def scored_items(name: str, budget: Budget) -> list[Item]:
    """Items to be scored by, none of which is in the text; as many of each group.

    Args:
        name: "polynomials" or "induction".
        budget: says how many.
    """
    count = budget.task_items
    if name == "induction":
        return list(distinct(induction.held_out_item, count))
    return [
        item
        for operations in range(1, TRAINED_OPERATIONS + 3)
        for item in distinct(partial(polynomials.held_out_item, ring=_ring(budget), operations=operations), count)
    ]


def _ring(budget: Budget) -> polynomials.Ring:
    return polynomials.Ring(*budget.polynomial_ring)


def _lines(items: Iterator[Item]) -> Iterator[str]:
    return (json.dumps({"text": item.text}) + "\n" for item in items)
