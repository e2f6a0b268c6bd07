"""The texts that are trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from functools import lru_cache, partial
from pathlib import Path

from headstart.errors import ConfigError
from headstart.train.whole_files import write_whole
from paper.budgets import Budget
from paper.tasks import induction, polynomials
from paper.tasks.item import Draw, Item, distinct

TRAINED_OPERATIONS = 3
"""Operations of an expression that is trained on, at most."""

_REAL = ("code", "prose")

CORPORA = (*_REAL, "polynomials", "induction")

# of items, by which a text is told from another
_TELLING = 100


@lru_cache
def contents_of(name: str, budget: Budget) -> tuple[str, ...]:
    """What a text is made of, as settings of jobs hold it: its sources, or what tells made-up items from others.

    Args:
        name: one of `CORPORA`.
        budget: says how much of it.
    """
    if name in _REAL:
        return _sources(name, budget)
    draw, count = _training_items(name, budget)
    return (f"{count} items, the first of them {_digest_of_text(draw)}",)


def sources_of(name: str, budget: Budget, folder: Path) -> tuple[str, ...]:
    """Names of the sources of a text, as `headstart data` takes them; made-up items are written first.

    Args:
        name: one of `CORPORA`.
        budget: says how much of it.
        folder: where items are written.
    """
    if name in _REAL:
        return _sources(name, budget)
    draw, count = _training_items(name, budget)
    path = folder / f"{name}-{count}-{_digest_of_text(draw)}.jsonl"
    if not path.exists():
        write_whole(path, "".join(_lines(distinct(draw, count))))
    return (f"jsonl:{path}",)


def scored_items(name: str, budget: Budget) -> list[Item]:
    """Items to be scored by, as many of each group.

    Args:
        name: "polynomials" or "induction".
        budget: says how many.
    """
    count = budget.task_items
    if name == "induction":
        return list(distinct(induction.scored_item, count))
    return [
        item
        for operations in range(1, TRAINED_OPERATIONS + 3)
        for item in distinct(partial(polynomials.held_out_item, ring=_ring(budget), operations=operations), count)
    ]


@lru_cache
def scored_digest(name: str, budget: Budget) -> str:
    """Tells the items that `scored_items` gives from others."""
    return _digest(scored_items(name, budget))


def _sources(name: str, budget: Budget) -> tuple[str, ...]:
    return budget.code if name == "code" else budget.prose


def _training_items(name: str, budget: Budget) -> tuple[Draw, int]:
    """Items to train on, and how many."""
    count = budget.task_training_items
    match name:
        case "polynomials":
            draw = partial(polynomials.training_sheet, ring=_ring(budget), most_operations=TRAINED_OPERATIONS)
            return draw, count // polynomials.SHEET_ITEMS
        case "induction":
            return partial(induction.training_item, rare_one_of=budget.induction_rare_one_of), count
        case _:
            raise ConfigError(f"corpus {name!r}: there are {', '.join(CORPORA)}.")


def _digest_of_text(draw: Draw) -> str:
    """Tells a made-up text from others by its first items."""
    return _digest(map(draw, range(_TELLING)))


def _digest(items: Iterable[Item]) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for item in items:
        digest.update(json.dumps(astuple(item)).encode())
    return digest.hexdigest()


def _ring(budget: Budget) -> polynomials.Ring:
    return polynomials.Ring(*budget.polynomial_ring)


def _lines(items: Iterator[Item]) -> Iterator[str]:
    return (json.dumps({"text": item.text}) + "\n" for item in items)
