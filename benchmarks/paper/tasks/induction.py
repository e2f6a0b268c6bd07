"""Stories in which a name that was read before is to be finished: the second token of a two-token name.

Tokens are bytes here, so a name of one token is a capital letter, and one of two is a capital and a small letter. There
are three names in a story. Those of two tokens to train on are pairs of letters that tests never have; so the second
letter of a test's name can be known from its first mention alone, by induction.

    Kz saw Mb. Mb and Ty ran. K|z        prompt | answer

Stories are terse, so that much of the text is names: it is they that teach.

Source: Gloeckle et al. 2404.19737, section 4.1, which replaces names in children's stories by such ones.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence

from paper.tasks.item import Item, is_held_out

NAMES = 3
"""In a story."""

_NAME = re.compile("[A-Z][a-z]")

_HELD_OUT_ONE_OF = 4
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
    names = generator.sample(string.ascii_uppercase, NAMES)
    if generator.randrange(rare_one_of) == 0:
        names = [_finished(generator, letter, held_out=False) for letter in names]
    return Item(prompt=_story(generator, names), answer="")


def held_out_item(number: int) -> Item:
    """A story with names that no `training_item` has, up to the first letter of one that comes again."""
    generator = random.Random(f"test {number}")
    while True:
        letters = generator.sample(string.ascii_uppercase, NAMES)
        names = [_finished(generator, letter, held_out=True) for letter in letters]
        story = _story(generator, names)
        name, at = max(((name, story.rindex(name)) for name in names if name in story), key=lambda found: found[1])
        if story.index(name) < at:
            return Item(prompt=story[: at + 1], answer=name[1], rest=story[at + 2 :], group="second token of a name")


def share_without_reading_the_letter(item: Item) -> float:
    """Whether a held-out item is answered rightly by where names stand alone, its own first letter unread.

    That is with the name that was mentioned longest ago, but for those of the sentence at hand.
    """
    before, _, sentence = item.prompt.rpartition(".")
    here = set(_NAME.findall(sentence))
    by_last_mention = dict.fromkeys(reversed(_NAME.findall(before)))
    left = [name for name in by_last_mention if name not in here]
    return float(bool(left) and left[-1][1] == item.answer)


def _finished(generator: random.Random, letter: str, *, held_out: bool) -> str:
    while True:
        name = letter + generator.choice(string.ascii_lowercase)
        if is_held_out(name, _HELD_OUT_ONE_OF) == held_out:
            return name


def _story(generator: random.Random, names: Sequence[str]) -> str:
    count = generator.randint(_FEWEST_SENTENCES, _MOST_SENTENCES)
    return " ".join(generator.choice(_SENTENCES).format(*generator.sample(names, 2)) for _ in range(count))
