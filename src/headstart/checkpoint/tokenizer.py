"""Text to tokens and back, whatever file the vocabulary came from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from headstart.checkpoint.chat_template import ChatTemplate
from headstart.checkpoint.spelling import Spelling
from headstart.checkpoint.stream import StreamDecoder
from headstart.errors import ConfigError, UnsupportedError

__all__ = ["SpecialTokens", "StreamDecoder", "Tokenizer"]

# where vocabularies part ways: words, runs of digits, marks, white space, accents, other scripts
_SPLIT_PROBE = "Hello world, it's 2026: we'LL sum 12345 + 6.7\n\n\tdef f(x):  return x_1  # naïve, привет, 你好, 🙂!?"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecialTokens:
    """The part that single tokens play.

    Attributes:
        bos_id: what begins a text, if anything.
        end_ids: what ends one, the customary end first.
        names: what templates call them: {"bos_token": "<s>", ...}.
        prefix_ids: put before an encoded text.
        suffix_ids: put after it.
        from_backend: the vocabulary's own rule adds tokens; then there is
            neither prefix nor suffix here.
    """

    bos_id: int | None = None
    end_ids: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    from_backend: bool = False


class Tokenizer:
    """A model's vocabulary, its special tokens and its chat template.

    Attributes:
        vocab_size: one more than the highest id that has a token. The model's
            embedding may have more rows; those ids decode to nothing.
        bos_id: the token that begins a text, or `None`.
        end_ids: the tokens that end a text, the customary one first.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        spelling: Spelling,
        special: SpecialTokens,
        templates: Mapping[str, str],
        vocab_size: int,
    ) -> None:
        """See `Checkpoint.tokenizer`, which makes these.

        Args:
            backend: splits text into tokens.
            spelling: what tokens stand for.
            special: the part that single tokens play.
            templates: chat templates by name; "default", and perhaps "tool_use".
            vocab_size: one more than the highest id that has a token.
        """
        self._backend = backend
        self._spelling = spelling
        self._special = special
        self._templates = {name: ChatTemplate(source) for name, source in templates.items()}
        self._special_ids = frozenset(
            token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special
        )
        self._bytes: dict[int, bytes] = {}
        self.vocab_size = vocab_size
        self.bos_id = special.bos_id
        self.end_ids = special.end_ids

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text.

        Special tokens that the text spells out are read as such.

        Args:
            text: any text; an empty one has no tokens but the special ones.
            add_special_tokens: add what the model's own tokenizer puts around a
                text, usually a token to begin with, or nothing.

        Raises:
            ConfigError: the text holds half of a surrogate pair, which is no
                character.
        """
        try:
            from_backend = add_special_tokens and self._special.from_backend
            ids = self._backend.encode(text, add_special_tokens=from_backend).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise ConfigError(
                f"The text cannot be encoded ({error}). It must be a string without halves of surrogate pairs, which "
                "Python puts where bytes are not UTF-8: convert the text to UTF-8, for instance with iconv."
            ) from error
        if add_special_tokens:
            return [*self._special.prefix_ids, *ids, *self._special.suffix_ids]
        return list(ids)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of tokens; bytes that form no character are U+FFFD.

        Args:
            ids: token ids; one without a token stands for nothing.
            skip_special_tokens: leave special tokens out.
        """
        stream = self.stream(skip_special_tokens=skip_special_tokens)
        return stream.push(ids) + stream.finish()

    def stream(self, *, skip_special_tokens: bool = True) -> StreamDecoder:
        """A decoder for tokens that arrive one by one, for one text."""
        bytes_of: Callable[[int], bytes] = self._shown_bytes if skip_special_tokens else self.token_bytes
        return StreamDecoder(bytes_of, strips_first_space=self._spelling.strips_first_space)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for: UTF-8, perhaps a part of a character.

        Args:
            token_id: an id, at least 0; one without a token has no bytes.
        """
        known = self._bytes.get(token_id)
        if known is None:
            if not 0 <= token_id < 1 << 32:
                raise ConfigError(f"token id {token_id}: it must be between 0 and 2**32 - 1.")
            token = self._backend.id_to_token(token_id)
            known = self._bytes[token_id] = b"" if token is None else self._spelling.to_bytes(token)
        return known

    def _shown_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self._special_ids else self.token_bytes(token_id)

    def token_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, or `None`."""
        return self._backend.token_to_id(token)

    def is_special(self, token_id: int) -> bool:
        """Whether the token marks something, such as an end or a role, and is no text."""
        return token_id in self._special_ids

    def digest(self) -> str:
        """A fingerprint of the vocabulary and of how it splits text: 32 hexadecimal digits.

        It covers the bytes of every token, the part that single tokens play, and
        how a text of every kind of character is split, so it does not depend on
        the file format or on a library's version. It costs some 0.1 s.
        """
        state = hashlib.blake2b(digest_size=16)
        state.update(repr((self.vocab_size, self.bos_id, self.end_ids)).encode())
        for token_id in range(self.vocab_size):
            state.update(repr((self.token_bytes(token_id), self.is_special(token_id))).encode())
        state.update(repr(self.encode(_SPLIT_PROBE)).encode())
        return state.hexdigest()

    def chat_template_digest(self) -> str | None:
        """A fingerprint of the default chat template, 32 hexadecimal digits; `None` if there is none."""
        source = self.chat_template
        return None if source is None else hashlib.blake2b(source.encode(), digest_size=16).hexdigest()

    @property
    def special(self) -> SpecialTokens:
        """The part that single tokens play."""
        return self._special

    @property
    def templates(self) -> dict[str, str]:
        """The sources of all chat templates, by name."""
        return {name: template.source for name, template in self._templates.items()}

    def backend_json(self) -> str:
        """Vocabulary and rules as the `tokenizers` library writes them; what `special` says is not among them."""
        return self._backend.to_str()

    @property
    def chat_template(self) -> str | None:
        """The source of the default chat template, or `None`."""
        template = self._templates.get("default")
        return None if template is None else template.source

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: object,
    ) -> str:
        """A conversation as the text the model was trained on.

        Args:
            messages: dicts with a "role" and mostly a "content".
            add_generation_prompt: end with the opening of the assistant's turn.
            tools: JSON schemas of functions the model may call.
            **variables: what else the template knows, such as `enable_thinking`.

        Raises:
            UnsupportedError: the model has no chat template.
            ConfigError: a message is malformed, or the template refuses it.
        """
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        template = self._templates.get(name)
        if template is None:
            raise UnsupportedError(
                f"This model has no {name} chat template (it has {', '.join(self._templates) or 'none'}). "
                "Use a model tuned for chat, or give plain text."
            )
        known: dict[str, object] = {"tools": tools, "documents": None, **self._special.names, **variables}
        return template.render(messages, add_generation_prompt=add_generation_prompt, variables=known)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: object,
    ) -> list[int]:
        """The tokens of a conversation; arguments as `render_chat`.

        The template writes all special tokens itself, so none is added: a text
        never begins twice.
        """
        text = self.render_chat(messages, add_generation_prompt=add_generation_prompt, tools=tools, **variables)
        return self.encode(text, add_special_tokens=False)
