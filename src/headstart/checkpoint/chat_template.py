"""Chat templates: Jinja programs that come with a model and are not trusted.

They run in Jinja's sandbox, with the additions that templates rely on and as
Hugging Face transformers sets them up, so that a template means the same here.

Source: transformers, utils/chat_template_utils.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from headstart.errors import ConfigError

if TYPE_CHECKING:
    from jinja2 import Template


class ChatTemplate:
    """A template, compiled when it is first used.

    Attributes:
        source: the template's text.
    """

    def __init__(self, source: str) -> None:
        """Take the template's text; nothing is checked yet."""
        self.source = source

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, variables: Mapping[str, object]
    ) -> str:
        """The conversation as text.

        Args:
            messages: dicts with at least a "role". Keys that are `None` are
                left out, as templates tell "no content" by the missing key.
            add_generation_prompt: end with the opening of the assistant's turn.
            variables: what else the template may read.

        Raises:
            ConfigError: a message is malformed, or the template is wrong or
                refuses the conversation; the text then is the template's own.
        """
        template = self._template  # may itself raise a ConfigError
        known = {**variables, "messages": _checked(messages), "add_generation_prompt": add_generation_prompt}
        try:
            return template.render(known)
        except Exception as error:  # the template is foreign code and may fail in any way
            raise ConfigError(
                f"The model's chat template refuses this conversation ({str(error) or type(error).__name__}). "
                "Check the roles and their order, or change the template."
            ) from error

    @cached_property
    def _template(self) -> Template:
        return _compile(self.source)


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ConfigError(f"messages is a {type(messages).__name__}: it must be a list of dicts with role and content.")
    if not messages:
        raise ConfigError("messages is empty: there must be at least one message.")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ConfigError(f"messages[{index}] is a {type(message).__name__}: it must be a dict with role, content.")
        if not isinstance(message.get("role"), str):
            raise ConfigError(
                f"messages[{index}] has role {message.get('role')!r}: it must be a string such as 'user'."
            )
    # templates ask whether content is none, where a tool is called, and whether other keys are there
    return [
        {key: value for key, value in message.items() if value is not None or key == "content"} for message in messages
    ]


def _compile(source: str) -> Template:
    # imported late: most uses of a model never render a template
    from datetime import datetime

    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """`{% generation %}` marks what the assistant wrote, for training; here it means its contents."""

        tags = {"generation"}  # noqa: RUF012 - the name and type are Jinja's

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Jinja's own filter escapes <, > and & for web pages, which a model never saw
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except Exception as error:  # syntax errors, and what a hostile source may do to the parser
        raise ConfigError(
            f"The model's chat template is not valid Jinja: {error}. Give a template of your own or plain text."
        ) from error
