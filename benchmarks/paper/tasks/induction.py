"""Stories in which a name that was read before is to be finished: the second token of a two-token name.

Tokens are bytes here, so a name of one token is a capital letter, and one of two is a capital and a small letter. There
are three names in a story. Their letters are drawn anew for every story, to train on and to be scored by, and all are
as likely: which second letter follows can be known from the name's first mention in the story alone, by induction. No
pair is held out. A model that knew by heart which pairs there are would be led away from those.

    Ha saw Cf. Cf and Be ran. H|a        prompt | answer

A scored story ends in the name that a sentence begins with, which any of the three is as likely to be, wherever they
stood before. Stories are terse, so that much of the text is names: it is they that teach.

Source: Gloeckle et al. 2404.19737, section 4.1, which replaces names in children's stories by such ones.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence

from paper.tasks.item import Item

NAMES = 3
"""In a story."""

FIRST_LETTERS, SECOND_LETTERS = string.ascii_uppercase[:8], string.ascii_lowercase[:8]
"""Of names; few, so that a model meets each often, for every letter is to be matched with itself."""

_NAME = re.compile("[A-Z][a-z]")

_FEWEST_SENTENCES, _MOST_SENTENCES = 6, 12

_SENTENCES = (
    "{0} saw {1}.", "{0} met {1}.", "{0} fed {1}.", "{0} sang to {1}.", "{0} and {1} ran.", "{0} sat.", "{0} hid."
)  # fmt: skip


def training_item(number: int, rare_one_of: int) -> Item:
    """A story to train on.

    Args:
        number: which.
        rare_one_of: how many stories there are for one with two-token names.
    """
    generator = random.Random(f"train {number}")
    names = generator.sample(FIRST_LETTERS, NAMES)
    if generator.randrange(rare_one_of) == 0:
        names = _finished(generator, names)
    return Item(prompt=" ".join(_sentences(generator, names)), answer="")


def scored_item(number: int) -> Item:
    """A story with two-token names up to the first letter of one that was mentioned in a sentence before."""
    generator = random.Random(f"test {number}")
    while True:
        names = _finished(generator, generator.sample(FIRST_LETTERS, NAMES))
        *before, last = _sentences(generator, names)
        story = " ".join(before)
        if last[:2] in story:
            return Item(prompt=f"{story} {last[0]}", answer=last[1], rest=last[2:], group="second token of a name")


def share_without_reading_the_letter(item: Item) -> float:
    """How often a scored item is answered rightly by finishing any of its names, with its own first letter unread.

    As any name is as likely to come, no way of choosing by the places of names is right more often.
    """
    names: set[str] = set(_NAME.findall(item.prompt))
    return sum(name[1] == item.answer for name in names) / len(names)


def _finished(generator: random.Random, letters: Sequence[str]) -> list[str]:
    """Names of two tokens."""
    return [letter + generator.choice(SECOND_LETTERS) for letter in letters]


def _sentences(generator: random.Random, names: Sequence[str]) -> list[str]:
    count = generator.randint(_FEWEST_SENTENCES, _MOST_SENTENCES)
    return [generator.choice(_SENTENCES).format(*generator.sample(names, 2)) for _ in range(count)]
