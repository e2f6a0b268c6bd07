"""Questions that heads are measured with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from head_figures.engines import Engines
from head_figures.workload import Question, make_prompt, read_questions
from headstart.errors import ConfigError


def test_categories_are_spec_bench_s_own_and_the_names_of_the_other_files(files: tuple[Path, Path, Path]) -> None:
    questions = read_questions(files[2])
    assert [question.category for question in questions] == [
        "writing", "math", "math_reasoning", "coding", "humaneval", *["gsm8k"] * 4,
    ]  # fmt: skip
    assert [question.is_chat for question in questions] == [True] * 4 + [False] + [True] * 4


def test_a_limit_takes_questions_evenly_from_each_file(files: tuple[Path, Path, Path]) -> None:
    assert [question.id for question in read_questions(files[2], limit=2)] == ["s1", "s3", "h1", "g0", "g2"]


def test_code_is_written_on_as_it_stands_and_questions_are_put_into_the_template(engines: Engines) -> None:
    tokenizer = engines.plain.tokenizer
    text, chat = (
        Question(id="x", category="c", turns=("the rain", "and"), is_chat=is_chat) for is_chat in (False, True)
    )
    assert make_prompt(tokenizer, text).token_ids == tuple(tokenizer.encode("the rain"))
    assert make_prompt(tokenizer, chat).token_ids == tuple(
        tokenizer.encode_chat([{"role": "user", "content": "the rain"}])
    )
    conversation = [
        {"role": "user", "content": "the rain"},
        {"role": "assistant", "content": "falls"},
        {"role": "user", "content": "and"},
    ]
    assert make_prompt(tokenizer, chat, ["falls"]).token_ids == tuple(tokenizer.encode_chat(conversation))


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": "x", "category": "c"}', '{"id": "x", "category": "c", "turns": []}',
             '{"id": "x", "category": "c", "turns": "the rain"}', '{"id": 1, "category": "c", "turns": ["a"]}'],
)  # fmt: skip
def test_a_line_that_is_no_question_is_refused_by_number(
    tmp_path: Path, write_data: Callable[[Path], Path], line: str
) -> None:
    write_data(tmp_path)
    with (tmp_path / "gsm8k.jsonl").open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(ConfigError, match=r"gsm8k\.jsonl, line 6: no question"):
        read_questions(tmp_path)


def test_a_file_without_questions_is_refused(tmp_path: Path, write_data: Callable[[Path], Path]) -> None:
    (write_data(tmp_path) / "humaneval.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match=r"humaneval\.jsonl: there is no question"):
        read_questions(tmp_path)
