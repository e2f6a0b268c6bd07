"""A question with one right answer, and which side it is on."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headstart.errors import ConfigError

# of items that were all seen before, after which there are taken to be no others
_MOST_REPEATS = 1000

Draw = Callable[[int], "Item"]
"""The item of a number; the same number gives the same item."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question with one right answer.

    Attributes:
        prompt: what the model is given.
        answer: how it has to go on; as many bytes are asked of it.
        rest: what follows in a text to train on.
        group: under which it is scored.
    """

    prompt: str
    answer: str
    rest: str = ""
    group: str = ""

    @property
    def text(self) -> str:
        """All of it, to train on."""
        return self.prompt + self.answer + self.rest


def mean_by_group(items: Iterable[Item], share: Callable[[Item], float]) -> dict[str, float]:
    """The mean of a figure of each item, by the items' groups."""
    found: dict[str, list[float]] = {}
    for item in items:
        found.setdefault(item.group, []).append(share(item))
    return {group: statistics.fmean(shares) for group, shares in found.items()}


def is_held_out(key: str, one_of: int) -> bool:
    """Whether what a key names is never trained on; its digest decides, so no list has to be kept.

    Args:
        key: such as the question.
        one_of: how many keys there are for one that is held out.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % one_of == 0


def distinct(draw: Draw, count: int) -> Iterator[Item]:
    """The first `count` different items of a stream.

    Args:
        draw: gives the item of each number from 0.
        count: of items.

    Raises:
        ConfigError: there seem to be fewer.
    """
    seen: set[str] = set()
    number = repeats = 0
    while len(seen) < count:
        item = draw(number)
        number += 1
        if item.text not in seen:
            seen.add(item.text)
            repeats = 0
            yield item
        elif (repeats := repeats + 1) == _MOST_REPEATS:
            raise ConfigError(f"{count} items like {item.text!r} are asked for; there seem to be {len(seen)} of them.")
