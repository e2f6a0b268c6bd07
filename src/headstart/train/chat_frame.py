"""What a chat template puts around the turns of a conversation, as token ids.

A text that the model writes turn by turn must have the very ids that the
template would give it. They are found by rendering conversations that differ
in their contents alone: what they have in common is the frame. Nothing is
searched for in text, so no content can be mistaken for a mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product

from headstart.checkpoint import Tokenizer
from headstart.errors import UnsupportedError

# contents whose first and last tokens are of different kinds, so that no two of them end alike
_CONTENTS = ("Why?", "3 apples", "(a list)", "ends in 7")


class ChatFrame:
    """The template of one tokenizer, taken apart when its parts are first asked for.

    Example:
        >>> frame = ChatFrame(tokenizer)
        >>> [*frame.head, *frame.encode("Why?"), *frame.tail] == frame.first_turn("Why?")
        True
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Take the tokenizer; nothing is rendered yet."""
        self._tokenizer = tokenizer

    @property
    def has_template(self) -> bool:
        """Whether the model knows conversations at all."""
        return self._tokenizer.chat_template is not None

    @cached_property
    def marks(self) -> frozenset[int]:
        """Ids that are no text: ends and special tokens."""
        special = (token_id for token_id in range(self._tokenizer.vocab_size) if self._tokenizer.is_special(token_id))
        return frozenset((*self._tokenizer.end_ids, *special))

    def encode(self, content: str) -> list[int]:
        """The ids of a turn's content inside the frame."""
        return self._tokenizer.encode(content, add_special_tokens=False)

    def encode_raw(self, text: str) -> list[int]:
        """The ids of a plain text, with what the model wants before it."""
        return self._tokenizer.encode(text)

    def first_turn(self, content: str, system: str | None = None) -> list[int]:
        """The ids of a conversation up to the first answer.

        Raises:
            UnsupportedError: the model has no chat template.
            ConfigError: the template refuses a system message.
        """
        opening = [] if system is None else [{"role": "system", "content": system}]
        return self._tokenizer.encode_chat([*opening, {"role": "user", "content": content}])

    @property
    def head(self) -> tuple[int, ...]:
        """The ids before the content of the user's first turn."""
        return self._around[0]

    @property
    def tail(self) -> tuple[int, ...]:
        """The ids from a user's content to the answer."""
        return self._around[1]

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rendered = [self.first_turn(content) for content in _CONTENTS]
        head = _common_prefix(rendered)
        tail = _common_prefix([ids[len(head) :][::-1] for ids in rendered])[::-1]
        for content, ids in zip(_CONTENTS, rendered, strict=True):
            if [*head, *self.encode(content), *tail] != ids:
                raise UnsupportedError(
                    "The chat template changes contents, or its marks melt into them, so the model cannot be given a "
                    "question to complete. Give whole prompts of one turn."
                )
        return head, tail

    @cached_property
    def between(self) -> tuple[int, ...]:
        """The ids between an answer's content and the user's next one; the first of them ends the answer.

        Raises:
            UnsupportedError: the template has no such fixed ids: it rewrites
                earlier turns, or ends answers with no end token.
        """
        found = set()
        for answer, question in product(_CONTENTS[:2], _CONTENTS[2:]):
            before = [*self.head, *self.encode(_CONTENTS[0]), *self.tail, *self.encode(answer)]
            after = [*self.encode(question), *self.tail]
            ids = self._tokenizer.encode_chat(
                [
                    {"role": "user", "content": _CONTENTS[0]},
                    {"role": "assistant", "content": answer},
                    {"role": "user", "content": question},
                ]
            )
            middle = tuple(ids[len(before) : len(ids) - len(after)])
            found.add(middle if [*before, *middle, *after] == ids else ())
        (between, *others) = found
        if others or not between or between[0] not in self._tokenizer.end_ids:
            raise UnsupportedError(
                "The chat template does not simply add a turn to what was said before, so a second turn cannot follow "
                "what the model wrote. Give prompts of one turn."
            )
        return between


def _common_prefix(sequences: Sequence[Sequence[int]]) -> tuple[int, ...]:
    prefix: list[int] = []
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        prefix.append(column[0])
    return tuple(prefix)
