"""Whether two models mean the same by the same token ids."""

from __future__ import annotations

from typing import Protocol

from headstart.errors import UnsupportedError


class Vocabulary(Protocol):
    """Ids and what they stand for; `headstart.checkpoint.Tokenizer` is one.

    Attributes:
        vocab_size: one more than the highest id that has a token.
    """

    vocab_size: int

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; none for an id without a token."""


def check_same_vocabulary(trunk: Vocabulary, drafter: Vocabulary) -> None:
    """Refuse a drafter that would mean something else by its guesses.

    An id that has no token in one of the two is padding there, and does no
    harm: models of one family differ in it.

    Raises:
        UnsupportedError: an id stands for other bytes.
    """
    for token_id in range(min(trunk.vocab_size, drafter.vocab_size)):
        ours, theirs = trunk.token_bytes(token_id), drafter.token_bytes(token_id)
        if ours != theirs and ours and theirs:
            raise UnsupportedError(
                f"The drafting model has another vocabulary: token id {token_id} is {_shown(ours)} in the model and "
                f"{_shown(theirs)} in the drafter. Use a drafter of the same family, or draft = 'lookup'."
            )


def _shown(token: bytes) -> str:
    try:
        return repr(token.decode())
    except UnicodeDecodeError:  # a part of a character
        return repr(token)
