"""A prompt, and the requests that come of it: one for each thing that the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

Item = TypeVar("Item")

Message = tuple[str, str]
"""Role and content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What is asked.

    Attributes:
        id: its name in its set.
        category: the kind of traffic under which it is reported.
        messages: the conversation up to where the model is to answer; of a raw prompt, the text alone.
        follow_ups: what the user says after each answer.
        raw: the text is written on as it stands, without a chat template.
    """

    id: str
    category: str
    messages: tuple[Message, ...]
    follow_ups: tuple[str, ...] = ()
    raw: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request.

    Attributes:
        prompt: of which it is a part.
        answers: the model's own to the turns before.
        copy: 0 for the first time that a run has the prompt in one go, 1 for the second, ...
    """

    prompt: Prompt
    answers: tuple[str, ...] = ()
    copy: int = 0

    @property
    def name(self) -> str:
        """Unique among the requests of one go."""
        turn = f", turn {len(self.answers) + 1}" if self.answers else ""
        return self.prompt.id + turn + (f" (again, {self.copy})" if self.copy else "")

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation with the answers so far."""
        messages = [{"role": role, "content": content} for role, content in self.prompt.messages]
        for answer, question in zip(self.answers, self.prompt.follow_ups, strict=False):
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]
        return messages

    @property
    def raw_text(self) -> str | None:
        """The text to be written on, or `None` for a conversation."""
        return self.prompt.messages[0][1] if self.prompt.raw else None

    def follow_up(self, answer: str) -> Ask | None:
        """The request that follows on an answer, if the user has more to say."""
        if len(self.answers) == len(self.prompt.follow_ups):
            return None
        return replace(self, answers=(*self.answers, answer))


def take_evenly(items: Sequence[Item], count: int) -> list[Item]:
    """So many items, in order, at even distances, as sets are sorted by category; all, if they are no more."""
    if count >= len(items):
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]
