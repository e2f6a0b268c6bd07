"""Chat templates: what they may do, and what becomes of errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headstart.checkpoint.chat_template import ChatTemplate
from headstart.errors import ConfigError

HELLO = [{"role": "user", "content": "hello"}]


def render(source: str, messages: Any = HELLO, *, add_generation_prompt: bool = True, **variables: object) -> str:
    return ChatTemplate(source).render(messages, add_generation_prompt=add_generation_prompt, variables=variables)


def test_messages_and_variables_are_known() -> None:
    source = "{% for m in messages %}{{ bos }}{{ m.role }}: {{ m['content'] }}{% endfor %}{{ add_generation_prompt }}"
    assert render(source, bos="<s>", add_generation_prompt=False) == "<s>user: helloFalse"


def test_blocks_leave_no_lines_behind() -> None:
    assert render("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_json_keeps_letters_and_markup() -> None:
    assert render("{{ tools | tojson }}", tools=[{"a": "größe <b>"}]) == '[{"a": "größe <b>"}]'
    assert render("{{ tools | tojson(indent=1) }}", tools=[1]) == "[\n 1\n]"


def test_loop_controls() -> None:
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"


def test_generation_marks_are_transparent() -> None:
    assert render("a{% generation %}{{ messages[0].content }}{% endgeneration %}b") == "ahellob"


def test_the_date_is_at_hand() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", render("{{ strftime_now('%Y-%m-%d') }}"))


def test_keys_without_a_value_count_as_missing() -> None:
    source = "{{ 'calls' if messages[0].tool_calls is defined else 'none' }}"
    assert render(source, [{"role": "user", "content": "x", "tool_calls": None}]) == "none"


def test_content_of_none_is_none_and_not_missing() -> None:
    """As an assistant's message has it that calls a tool; templates branch on it."""
    source = "{{ 'calls' if messages[0]['content'] is none else messages[0]['content'] }}"
    assert render(source, [{"role": "assistant", "content": None, "tool_calls": [{}]}]) == "calls"


def test_a_refusal_has_the_templates_own_words() -> None:
    with pytest.raises(ConfigError, match="Conversation roles must alternate"):
        render("{{ raise_exception('Conversation roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages[7].content }}",
        "{{ messages[0].content + 1 }}",
        "{{ missing.field }}",
        "{% for i in range(10**12) %}x{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__()[0]() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_that_fails_or_oversteps_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match="chat template refuses"):
        render(source)


@pytest.mark.parametrize("source", ["{% if %}", "{{ x", "{% nosuchtag %}", "{% generation %}"])
def test_a_template_that_is_no_jinja_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match="not valid Jinja"):
        render(source)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        ("hello", "messages is a str"),
        (None, "messages is a NoneType"),
        (["hello"], r"messages\[0\] is a str"),
        ([{"content": "x"}], r"messages\[0\] has role None"),
        ([*HELLO, {"role": 3, "content": "x"}], r"messages\[1\] has role 3"),
    ],
)
def test_malformed_messages_are_named(messages: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        render("", messages)


def test_the_callers_messages_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": None}]
    render("{{ messages[0].role }}", messages)
    assert messages == [{"role": "user", "content": None}]
