"""Prompt sets from files: plain ones, Spec-Bench's, and logs of requests to an OpenAI-compatible server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import headstart
from headstart.errors import ConfigError
from headstart.measure.workload.prompts import Message, Prompt

SHIPPED = Path(headstart.__file__).parent / "data" / "prompts" / "everyday.jsonl"

_UNSORTED = "unsorted"
_WRAPPERS = ("body", "request")
_FORMS = ("messages", "turns", "prompt")
_NAMES = ("id", "question_id", "custom_id", "request_id")
_ROLES = ("system", "developer", "user", "assistant", "tool")


def shipped_prompts() -> list[Prompt]:
    """Forty prompts in eight categories, written for this project. Nothing that ships was trained on them."""
    return read_prompts(SHIPPED)


def read_prompts(path: Path) -> list[Prompt]:
    """Read a set of prompts: a JSON object a line, with one of

    - `"turns": ["...", ...]`, what the user says, turn by turn; Spec-Bench's files are of this form;
    - `"prompt": "..."`, a single message; with `"raw": true` a text to be written on without a chat template;
    - `"messages": [{"role": ..., "content": ...}, ...]`, of which all up to the last message of the user is taken.

    A log of requests has the request itself, alone or under `body` or `request`; there a `prompt` is raw, as servers
    take it. A name is taken from `id`, `question_id`, `custom_id` or `request_id`, a category from `category`; other
    keys are not read.

    Raises:
        ConfigError: the file cannot be read, has no prompt, or a line is none; the text has its number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the prompts cannot be read ({error.strerror}). Name another file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the prompts are not UTF-8 ({error}). Convert the file, as by iconv.") from error
    prompts = _parse(text, str(path))
    if not prompts:
        raise ConfigError(
            f'{path} has no prompts; at least one is needed, such as {{"prompt": "Why is the sky blue?"}}.'
        )
    return prompts


def _parse(text: str, name: str) -> list[Prompt]:
    prompts: list[Prompt] = []
    seen: set[str] = set()
    # not splitlines: a line of JSON may hold the separators U+2028 and U+0085
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(line, number)
            if prompt.id in seen:
                raise ValueError(f"the name {prompt.id!r} came before; results are kept by name")
        except ValueError as error:
            raise ConfigError(f"{name}, line {number}: {error}.") from None
        seen.add(prompt.id)
        prompts.append(prompt)
    return prompts


def _prompt(line: str, number: int) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error}); each line must be one object") from None
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half a character (a lone surrogate), which no model can read") from None
    if not isinstance(entry, Mapping):
        raise ValueError(f"it holds a {type(entry).__name__}; it must be an object")
    wrapper = next((key for key in _WRAPPERS if isinstance(entry.get(key), Mapping)), None)
    request: Mapping[str, Any] = entry if wrapper is None else entry[wrapper]
    forms = [form for form in _FORMS if form in request]
    if len(forms) != 1:
        raise ValueError(f"it has {' and '.join(forms) or 'none'} of {', '.join(_FORMS)}; it must have exactly one")
    category = str(entry.get("category") or _UNSORTED)
    name = str(next((entry[key] for key in _NAMES if entry.get(key) is not None), number))
    # a request to a server has the model's name, and its prompt no chat template
    is_logged = wrapper is not None or "model" in request
    (form,) = forms
    if form == "messages":
        return Prompt(id=name, category=category, messages=_messages(request["messages"]))
    if form == "prompt":
        raw = bool(entry.get("raw", is_logged))
        return Prompt(id=name, category=category, messages=(("user", _text(request["prompt"])),), raw=raw)
    turns = request["turns"]
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"turns is {str(turns)[:80]!r}; it must be a list of texts, at least one")
    first, *others = (_text(turn) for turn in turns)
    return Prompt(id=name, category=category, messages=(("user", first),), follow_ups=tuple(others))


def _messages(messages: object) -> tuple[Message, ...]:
    if not isinstance(messages, Sequence) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError("messages is not a list of objects with role and content")
    found: list[Message] = []
    for message in messages:
        if message.get("role") not in _ROLES:
            raise ValueError(f"a message has the role {message.get('role')!r}; allowed are {', '.join(_ROLES)}")
        found.append((message["role"], _text(message.get("content"))))
    while found and found[-1][0] != "user":
        found.pop()
    if not found:
        raise ValueError("no message is the user's, so there is nothing to answer")
    return tuple(found)


def _text(content: object) -> str:
    """A text, or the texts of a message in parts."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError("a message has a part that is no text; only text can be measured")
        content = "".join(str(part) for part in parts)
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"{str(content)[:80]!r} came for a text; it must be a string that is not empty")
    return content
