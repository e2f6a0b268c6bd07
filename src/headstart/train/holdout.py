"""Which documents heads are not trained on, so that they can be judged by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.errors import ConfigError
from headstart.train.prompts import PromptSource
from headstart.train.text_shard import Document

# one of so many is held out, of a short text more, so that there are enough to judge by
_USUAL_STRIDE, _LEAST_STRIDE, _WANTED = 40, 8, 24


@dataclass(frozen=True, slots=True)
class Holdout:
    """A text in two parts.

    Attributes:
        training: numbers of the documents to train on.
        held_out: numbers of the others.
        prompts: token ids that the held-out documents begin with, up to the first answer; each once.
    """

    training: tuple[int, ...]
    held_out: tuple[int, ...]
    prompts: tuple[tuple[int, ...], ...]


def require_beginnings(source: PromptSource) -> None:
    """Refuse prompts whose text could not be parted, before it is written.

    Raises:
        ConfigError: all documents would begin alike.
    """
    beginnings = {(prompt.system, prompt.turns[0]) for prompt in source.prompts}
    if len(beginnings) < 2 and not any(prompt.opening for prompt in source.prompts):
        raise ConfigError(
            "There is only one prompt; at least 2 are needed, to train on one part of the text and measure with the "
            "other. Give more of them."
        )


def hold_out(documents: Sequence[Document]) -> Holdout:
    """Part a text by what documents begin with: none of the prompts that judge was trained on in another answer.

    Args:
        documents: the text.

    Raises:
        ConfigError: nothing is supervised, or there are not two different beginnings.
    """
    numbers: dict[tuple[int, ...], list[int]] = {}  # by beginning
    for number, document in enumerate(documents):
        if document.supervised.any():
            first = int(document.supervised.argmax())
            numbers.setdefault(tuple(document.tokens[:first].tolist()), []).append(number)
    if not numbers:
        raise ConfigError(
            f"None of the {len(documents)} documents of the text has a supervised token, so there is nothing to learn. "
            "Look at how the text was written."
        )
    if len(numbers) < 2:
        raise ConfigError(
            f"The text has {len(documents)} documents of {len(numbers)} different prompts; at least 2 prompts are "
            "needed, to train on one part and measure with the other. Give more prompts, or let it write more."
        )
    stride = max(min(_LEAST_STRIDE, len(numbers)), min(_USUAL_STRIDE, len(numbers) // _WANTED))
    held = [beginning for place, beginning in enumerate(numbers) if place % stride == 0]
    held_out = sorted(number for beginning in held for number in numbers[beginning])
    training = sorted({number for group in numbers.values() for number in group}.difference(held_out))
    return Holdout(tuple(training), tuple(held_out), tuple(beginning for beginning in held if beginning))
