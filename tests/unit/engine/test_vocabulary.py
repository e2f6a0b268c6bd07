from __future__ import annotations

import pytest

from headstart.engine.vocabulary import check_same_vocabulary
from headstart.errors import UnsupportedError


class Tokens:
    def __init__(self, *tokens: bytes) -> None:
        self.vocab_size = len(tokens)
        self._tokens = tokens

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]


def test_equal_vocabularies_and_padding_pass():
    ours = Tokens(b"a", b"b", b"\xc3", b"<end>")
    check_same_vocabulary(ours, ours)
    check_same_vocabulary(ours, Tokens(b"a", b"b", b"\xc3", b"<end>", b"[PAD4]", b"[PAD5]"))
    check_same_vocabulary(Tokens(b"a", b"b", b"\xc3", b"<end>", b"[PAD4]"), ours)
    check_same_vocabulary(ours, Tokens(b"a", b"b", b"", b"<end>"))  # no token there: nothing to confuse


def test_the_first_id_that_differs_is_named():
    with pytest.raises(UnsupportedError, match=r"token id 1 is 'bar' in the model and b'b\\xc3' in the drafter"):
        check_same_vocabulary(Tokens(b"a", b"bar", b"c"), Tokens(b"a", b"b\xc3", b"d"))
