"""Prompts of a given length: notes before the question, so that the model has something to look back on.

The notes are about nothing in the question. What is measured with them is what a longer context costs, not what it is
worth to a drafter that looks words up: the answer has little to copy from them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from headstart.measure.workload.prompts import Prompt

_WHO = (
    "the harbour master", "a retired surveyor", "my aunt from Trieste", "the younger baker", "our neighbour Olga",
    "a student of law", "the night porter", "two glaziers", "the widow Amundsen", "a travelling dentist",
    "the choir's conductor", "a beekeeper", "the postman's son", "an apprentice tailor", "the lock keeper",
    "a geologist", "the mayor's secretary", "three rowers", "a ferry pilot", "the museum guard",
)  # fmt: skip
_DID = (
    "repaired", "sold", "lost", "painted", "measured", "borrowed", "described", "inherited", "carried home",
    "photographed", "gave away", "counted", "hid", "cleaned", "exchanged", "remembered", "wrapped up", "drew",
)  # fmt: skip
_WHAT = (
    "an iron bedstead", "a crate of lemons", "the older of the bicycles", "forty metres of rope", "a cracked bell",
    "the map of the canal", "a pair of skates", "nine jars of plums", "the spare key", "a box of lantern slides",
    "the garden gate", "a barometer", "half a sack of barley", "the ledger of 1931", "a blue enamel stove",
    "some letters in Danish", "a folding chair", "the weathercock", "a violin without strings", "the last of the coal",
)  # fmt: skip
_WHEN = (
    "on the first dry day of March", "between two trains", "long before supper", "in the week of the fair",
    "after the clocks had been changed", "while it hailed", "at low tide", "on her forty-third birthday",
    "as soon as the shops had shut", "in the coldest hour", "a day too late", "during the second act",
)  # fmt: skip
_WHY = (
    "because nobody else would", "to please a cousin", "though the price had doubled", "without a word to anyone",
    "and regretted it by evening", "since the cellar was damp", "for the sake of the children", "out of mere habit",
    "which surprised the whole street", "and never spoke of it again", "against the doctor's advice",
    "so that the room would be free", "as the rule of the house demands", "and was thanked with a song",
)  # fmt: skip
_INTRODUCTION = "Some notes from an old diary, which need not be answered:"


class Filler:
    """Sentences without end, another order for each seed.

    Args:
        seed: the same seed gives the same sentences.
    """

    def __init__(self, seed: int) -> None:
        """Begin before the first sentence."""
        self._random = random.Random(seed)
        self._sentences: list[str] = []

    def text(self, count: int) -> str:
        """The first so many sentences after an introduction; nothing for 0."""
        while len(self._sentences) < count:
            self._sentences.append(self._sentence())
        return " ".join((_INTRODUCTION, *self._sentences[:count])) if count else ""

    def _sentence(self) -> str:
        who, did, what, when, why = (self._random.choice(words) for words in (_WHO, _DID, _WHAT, _WHEN, _WHY))
        order = self._random.choice(("{who} {did} {what} {when}, {why}.", "{when}, {who} {did} {what} {why}."))
        sentence = order.format(who=who, did=did, what=what, when=when, why=why)
        return sentence[0].upper() + sentence[1:]


def fill(prompt: Prompt, num_tokens: int, filler: Filler, count_tokens: Callable[[Prompt], int]) -> Prompt | None:
    """The prompt with as many whole notes before its first message as fit.

    Args:
        prompt: what is asked.
        num_tokens: that the filled prompt has at most; it falls short by less than a sentence.
        filler: the notes.
        count_tokens: of a prompt as the model reads it.

    Returns:
        `None` if the prompt alone has more tokens: nothing of it is cut off.
    """
    if count_tokens(prompt) > num_tokens:
        return None
    fits, too_many = 0, 1
    while count_tokens(_with_notes(prompt, filler.text(too_many))) <= num_tokens:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if count_tokens(_with_notes(prompt, filler.text(middle))) <= num_tokens:
            fits = middle
        else:
            too_many = middle
    return _with_notes(prompt, filler.text(fits)) if fits else prompt


def _with_notes(prompt: Prompt, notes: str) -> Prompt:
    place = next((index for index, (role, _) in enumerate(prompt.messages) if role == "user"), 0)
    role, content = prompt.messages[place]
    messages = list(prompt.messages)
    messages[place] = (role, f"{notes}\n\n{content}")
    return replace(prompt, messages=tuple(messages))
