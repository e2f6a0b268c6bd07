"""The questions that are asked: read from files, a few taken evenly, and made into token ids.

No file of questions lies in this repository: heads must not be trained on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.engine import Tokenizer
from headstart.errors import ConfigError
from headstart.measure.workload import take_evenly


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionFile:
    """A file of questions, one JSON object a line: `id`, `category`, `turns`.

    Attributes:
        name: its name in the folder.
        category: under which all of it is reported; `None` for the categories of its lines.
        is_chat: whether a question is a user's message, or a text to be written on as it stands.
    """

    name: str
    category: str | None
    is_chat: bool


FILES = (
    QuestionFile(name="spec_bench.jsonl", category=None, is_chat=True),
    QuestionFile(name="humaneval.jsonl", category="humaneval", is_chat=False),
    QuestionFile(name="gsm8k.jsonl", category="gsm8k", is_chat=True),
)

# "math" and "coding" are Spec-Bench's names for the two kinds in its conversations
GROUPS: Mapping[str, frozenset[str]] = {
    "maths": frozenset({"math", "math_reasoning", "gsm8k"}),
    "code": frozenset({"coding", "humaneval"}),
}
CREATIVE_CATEGORIES = frozenset({"writing", "roleplay"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One to be asked.

    Attributes:
        id: its name in its file.
        category: as it is reported.
        turns: the user's messages, at least one; all but the first follow on an answer.
        is_chat: see `QuestionFile`.
    """

    id: str
    category: str
    turns: tuple[str, ...]
    is_chat: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A question as the model reads it.

    Attributes:
        id: the question's, and which turn it is from the second on.
        category: the question's.
        token_ids: up to where the model answers.
    """

    id: str
    category: str
    token_ids: tuple[int, ...]


def read_questions(folder: Path, limit: int | None = None) -> list[Question]:
    """The questions of all files.

    Args:
        folder: where the files lie.
        limit: of each file at most, taken evenly over it.

    Raises:
        ConfigError: a file is missing or empty, or a line of it is not a question.
    """
    questions: list[Question] = []
    for file in FILES:
        found = _read_file(folder / file.name, file)
        questions += found if limit is None else take_evenly(found, limit)
    return questions


def make_prompt(tokenizer: Tokenizer, question: Question, answers: Sequence[str] = ()) -> Prompt:
    """The prompt of a question's first turn, or of the turn after some answers.

    Args:
        tokenizer: the model's.
        question: what is asked; a text to be written on has one turn.
        answers: the model's own to the turns before, fewer than there are turns.
    """
    turn = len(answers)
    name = question.id if turn == 0 else f"{question.id}, turn {turn + 1}"
    if not question.is_chat:
        return Prompt(id=name, category=question.category, token_ids=tuple(tokenizer.encode(question.turns[0])))
    messages = [{"role": "user", "content": question.turns[0]}]
    for answer, message in zip(answers, question.turns[1:], strict=False):
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": message}]
    return Prompt(id=name, category=question.category, token_ids=tuple(tokenizer.encode_chat(messages)))


def _read_file(path: Path, file: QuestionFile) -> list[Question]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{path}: the questions cannot be read ({error.strerror}). Give the folder that holds "
            f"{', '.join(each.name for each in FILES)} with --data, or put it at benchmarks/data."
        ) from error
    filled = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not filled:
        raise ConfigError(f"{path}: there is no question in it. Fetch or make the file again.")
    return [_parse(line, f"{path}, line {number}", file) for number, line in filled]


def _parse(line: str, where: str, file: QuestionFile) -> Question:
    try:
        fields: Any = json.loads(line)
        name, category, turns = fields["id"], fields["category"], fields["turns"]
        is_sound = isinstance(turns, list) and turns and all(isinstance(text, str) for text in (name, category, *turns))
    except (ValueError, TypeError, KeyError):
        is_sound = False
    if not is_sound:
        raise ConfigError(
            f'{where}: no question. A line is {{"id": text, "category": text, "turns": [text, ...]}}: {line[:80]!r}.'
        )
    if len(turns) > 1 and not file.is_chat:
        raise ConfigError(f"{where}: {len(turns)} turns, but a text to be written on has one.")
    return Question(id=name, category=file.category or category, turns=tuple(turns), is_chat=file.is_chat)
