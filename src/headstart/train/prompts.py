"""Prompts for self-distillation: from a file, or openings that the model completes itself.

A source of prompts says which one comes as number i, for every i. It is plain
data: what a prompt is in tokens is the matter of `headstart.train.chat_frame`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from headstart.errors import ConfigError

_OTHER = "other"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_KINDS = ("turns", "messages", "prompt", "opening")


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What a document begins with.

    Attributes:
        turns: what the user says, turn by turn; the model answers each.
        category: what it is about.
        system: the instruction before all turns; `None` leaves it to the template.
        opening: the model first goes on with the (only) turn and so writes the question itself.
        raw: the (only) turn is a plain text that the model goes on with, without a chat template.
    """

    turns: tuple[str, ...]
    category: str = _OTHER
    system: str | None = None
    opening: bool = False
    raw: bool = False


class PromptSource(Protocol):
    """Which prompt comes as number i, for every i."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All that can come."""

    def at(self, index: int) -> tuple[Prompt, int]:
        """The prompt of a number, and how often it came before."""


@dataclass(frozen=True, slots=True)
class PromptList:
    """Prompts that come one after another, evenly from the whole list, and then all over again.

    Attributes:
        prompts: at least one.

    Raises:
        ConfigError: there is none.
    """

    prompts: tuple[Prompt, ...]

    def __post_init__(self) -> None:
        if not self.prompts:
            raise ConfigError("There are no prompts; at least one is needed. Give a file with one a line.")

    def at(self, index: int) -> tuple[Prompt, int]:
        """The prompt of a number, and how often it came before."""
        size = len(self.prompts)
        visit, place = divmod(index, size)
        # files are sorted by subject: in strides, any stretch of numbers has some of all
        return self.prompts[place * _stride(size) % size], visit


@dataclass(frozen=True, slots=True)
class PromptMix:
    """Several sources in fixed proportions, as evenly as whole numbers permit.

    Attributes:
        parts: sources with their shares, whole numbers of at least 1: shares
            of 4 and 1 give four of the first for each of the second.

    Raises:
        ConfigError: there is no part, or a share is below 1.
    """

    parts: tuple[tuple[PromptSource, int], ...]

    def __post_init__(self) -> None:
        shares = [share for _, share in self.parts]
        if not shares or min(shares) < 1:
            raise ConfigError(f"Shares of prompts are {shares}: there must be some, each a whole number of at least 1.")

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All that can come."""
        return tuple(prompt for source, _ in self.parts for prompt in source.prompts)

    def at(self, index: int) -> tuple[Prompt, int]:
        """The prompt of a number, and how often it came before."""
        # part k's j-th item of a cycle is due at (j + 1/2) / share: sorted by that, they interleave
        due = sorted(((2 * j + 1) / share, k, j) for k, (_, share) in enumerate(self.parts) for j in range(share))
        cycle, place = divmod(index, len(due))
        _, part, rank = due[place]
        source, share = self.parts[part]
        return source.at(cycle * share + rank)


def prompts_digest(source: PromptSource) -> str:
    """A fingerprint of what comes in which order, 32 hexadecimal digits."""
    # the prompts tell lists apart, the first to come their order and proportions
    content = repr((source.prompts, [source.at(index) for index in range(1000)]))
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def shipped_openings(*, raw: bool = False) -> PromptList:
    """Openings of all kinds of questions and programs, written for this project.

    Args:
        raw: take all for plain texts, for a model without a chat template.
    """
    text = files("headstart.train").joinpath("openings.jsonl").read_text(encoding="utf-8")
    openings = _parse_lines(text, "openings.jsonl", as_json=True)
    return PromptList(tuple(replace(prompt, raw=prompt.raw or raw) for prompt in openings))


def read_prompts(path: str | Path) -> PromptList:
    """Read prompts from a file.

    Each line of a .jsonl file is an object with one of
    `{"turns": ["...", ...]}`, what the user says, turn by turn;
    `{"messages": [{"role": ..., "content": ...}, ...]}`, of which the system's and the
    user's are taken, as the model writes its own answers;
    `{"prompt": "..."}`, a single turn; or
    `{"opening": "..."}`, which the model completes to a question.
    `"raw": true` beside the last two means plain text without a chat template, and
    `"category"` a name for reports. Other keys are not read. In a file of any
    other name each line is a prompt. Empty lines do not count.

    Raises:
        ConfigError: the file cannot be read, has no prompts, or a line is malformed; the text has its number.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the prompts cannot be read ({error.strerror}). Name another file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: the prompts are not UTF-8 ({error}). Convert the file, for example by iconv."
        ) from (error)
    prompts = _parse_lines(text, str(path), as_json=path.suffix.lower() in _JSON_SUFFIXES)
    if not prompts:
        raise ConfigError(f"{path} has no prompts; at least one is needed. Give one a line.")
    return PromptList(prompts)


def _parse_lines(text: str, name: str, *, as_json: bool) -> tuple[Prompt, ...]:
    prompts: list[Prompt] = []
    # not splitlines: a line of JSON may hold the separators U+2028 and U+0085
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                prompts.append(_parse_object(line) if as_json else _parse_text(line))
            except ValueError as error:
                raise ConfigError(f"{name}, line {number}: {error}.") from None
    return tuple(prompts)


def _parse_text(line: str) -> Prompt:
    if line.startswith('{"'):
        raise ValueError("it looks like JSON, but the file does not end in .jsonl. Rename it to have it read as such")
    return Prompt(turns=(line.strip(),))


def _parse_object(line: str) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error}). Each line must be one object") from None
    if not isinstance(entry, dict):
        raise ValueError(f'it holds a {type(entry).__name__}; it must be an object such as {{"prompt": "..."}}')
    kinds = [kind for kind in _KINDS if kind in entry]
    if len(kinds) != 1:
        raise ValueError(f"it has {' and '.join(kinds) or 'none'} of {', '.join(_KINDS)}; it must have exactly one")
    (kind,) = kinds
    category, raw = entry.get("category", _OTHER), entry.get("raw", False)
    if not isinstance(category, str) or not category:
        raise ValueError(f"category is {category!r}; it must be a string that is not empty")
    if not isinstance(raw, bool) or (raw and kind in ("turns", "messages")):
        raise ValueError(f"raw is {raw!r} beside {kind}; it must be true or false, and true only for a single text")
    system, turns = _parse_messages(entry[kind]) if kind == "messages" else (None, _parse_turns(kind, entry[kind]))
    return Prompt(turns=turns, category=category, system=system, opening=kind == "opening", raw=raw)


def _parse_turns(kind: str, value: object) -> tuple[str, ...]:
    turns = value if kind == "turns" else [value]
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"{kind} is {str(value)[:80]!r}; it must be a list of strings, at least one")
    for turn in turns:
        if not isinstance(turn, str) or not turn.strip():
            raise ValueError(f"{kind} has {str(turn)[:80]!r}; a text must be a string that is not empty")
    return tuple(turns)


def _parse_messages(messages: object) -> tuple[str | None, tuple[str, ...]]:
    """The system's message, if there is one, and the user's."""
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError("messages is not a list of objects with role and content")
    known: list[Mapping[str, Any]] = messages
    roles = [message.get("role") for message in known]
    for place, role in enumerate(roles):
        if role not in ("system", "user", "assistant") or (role == "system" and place > 0):
            raise ValueError(
                f"messages[{place}] has role {role!r}; allowed are user, assistant, and system as the first"
            )
    if any(role == roles[place + 1] == "user" for place, role in enumerate(roles[:-1])):
        raise ValueError("two messages of the user follow each other; there must be an assistant's between them")
    system = _parse_turns("content", known[0].get("content"))[0] if roles[:1] == ["system"] else None
    turns = [message.get("content") for message in known if message["role"] == "user"]
    return system, _parse_turns("turns", turns)


def _stride(size: int) -> int:
    """A step that visits all of `size` places, far from any simple fraction of it."""
    stride = max(1, round(size * (math.sqrt(5) - 1) / 2))
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride
