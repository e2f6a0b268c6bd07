"""Stories in which a name that was read before is to be finished: the second token of a two-token name.

Tokens are bytes here, so a name of one token is a capital letter, and one of two is a capital and a small letter. Most
stories to train on have names of one token. In few there are two-token names, of pairs of letters that tests never
have; so the second letter of a test's name can be known from its first mention alone, by induction.

    Kz saw Mb. Mb went to the lake. K|z        prompt | answer

Source: Gloeckle et al. 2404.19737, section 4.1, which replaces names in children's stories by such ones.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

from paper.tasks.item import Item, is_held_out

_HELD_OUT_ONE_OF = 4
_FEWEST_SENTENCES, _MOST_SENTENCES = 3, 6

_BOTH = ("{0} saw {1}.", "{0} ran after {1}.", "{0} sang for {1}.", "{0} gave {1} an apple.", "{0} and {1} were glad.")
_ALONE = ("{0} went to the {2}.", "{0} sat by the {2}.", "{0} liked the {2}.", "the {2} was dark, and {0} slept.")
_PLACES = ("lake", "hill", "wood", "house", "well", "road", "barn", "sea")


def training_item(number: int, rare_one_of: int) -> Item:
    """A story to train on.

    Args:
        number: which.
        rare_one_of: how many stories there are for one with two-token names.
    """
    generator = random.Random(f"train {number}")
    first, second = generator.sample(string.ascii_uppercase, 2)
    if generator.randrange(rare_one_of) == 0:
        first, second = (_finished(generator, letter, held_out=False) for letter in (first, second))
    return Item(prompt=_story(generator, (first, second)), answer="")


def held_out_item(number: int) -> Item:
    """A story with names that no `training_item` has, up to the first letter of one that comes again."""
    generator = random.Random(f"test {number}")
    while True:
        letters = generator.sample(string.ascii_uppercase, 2)
        names = [_finished(generator, letter, held_out=True) for letter in letters]
        story = _story(generator, names)
        name, at = max(((name, story.rindex(name)) for name in names if name in story), key=lambda found: found[1])
        if story.index(name) < at:
            return Item(prompt=story[: at + 1], answer=name[1], rest=story[at + 2 :], group="second token of a name")


def _finished(generator: random.Random, letter: str, *, held_out: bool) -> str:
    while True:
        name = letter + generator.choice(string.ascii_lowercase)
        if is_held_out(name, _HELD_OUT_ONE_OF) == held_out:
            return name


def _story(generator: random.Random, names: Sequence[str]) -> str:
    sentences = []
    for _ in range(generator.randint(_FEWEST_SENTENCES, _MOST_SENTENCES)):
        first, second = generator.sample(names, 2)
        sentences.append(generator.choice(_BOTH + _ALONE).format(first, second, generator.choice(_PLACES)))
    return " ".join(sentences)
