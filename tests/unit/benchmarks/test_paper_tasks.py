"""Made-up tasks: answers against another way of working them out, and nothing held out that was trained on."""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from headstart.errors import ConfigError
from paper.budgets import SMOKE
from paper.corpora import TRAINED_OPERATIONS, scored_items, sources_of
from paper.tasks import induction, polynomials
from paper.tasks.item import Item, distinct

NAME = re.compile("[A-Z][a-z]?")


class Residue:
    """F7[X]/(X^3) by convolution; an expression's own text is Python over these."""

    def __init__(self, digits: str) -> None:
        self.coefficients = np.array([int(digit) for digit in digits])

    @staticmethod
    def of(coefficients: np.ndarray) -> Residue:
        return Residue("".join(str(c) for c in np.resize(np.append(coefficients, [0, 0, 0])[:3], 3) % 7))

    def __add__(self, other: Residue) -> Residue:
        return Residue.of(self.coefficients + other.coefficients)

    def __neg__(self) -> Residue:
        return Residue.of(-self.coefficients)

    def __mul__(self, other: Residue) -> Residue:
        return Residue.of(np.convolve(self.coefficients, other.coefficients))

    def __matmul__(self, other: Residue) -> Residue:
        constant, first, second = self.coefficients
        square = np.convolve(other.coefficients, other.coefficients)[:3]
        return Residue.of(np.array([constant, 0, 0]) + first * other.coefficients + second * square)

    def __str__(self) -> str:
        return "".join(map(str, self.coefficients))


def worked_out(item: Item) -> str:
    expression = item.prompt.removesuffix("=")
    return str(eval(re.sub(r"(\d{3})", r'Residue("\1")', expression), {"Residue": Residue}))


@pytest.mark.parametrize(
    ("text", "value"), [("(304+125)", "422"), ("-152", "625"), ("(110*001)", "001"), ("(010@352)", "352")]
)
def test_the_oracle_of_these_tests_works_out_what_a_person_does(text: str, value: str) -> None:
    assert worked_out(Item(prompt=f"{text}=", answer="")) == value


@pytest.mark.parametrize("operations", [1, 2, 3, 5])
def test_an_expression_has_its_operations_and_its_value(operations: int) -> None:
    for number in range(60):
        item = polynomials.held_out_item(number, operations)
        assert len(re.findall(r"[-+*@]", item.prompt)) == operations
        assert item.answer == worked_out(item), item.prompt
        assert item.text == item.prompt + item.answer


def test_expressions_to_train_on_have_up_to_so_many_operations() -> None:
    items = [polynomials.training_item(number, 3) for number in range(200)]
    assert {len(re.findall(r"[-+*@]", item.prompt)) for item in items} == {1, 2, 3}
    assert all(item.answer == worked_out(item) for item in items)


def test_no_expression_that_is_scored_was_trained_on() -> None:
    # few expressions have one operation, so that by chance alone some would be both
    trained = {polynomials.training_item(number, 1).prompt for number in range(3000)}
    scored = {polynomials.held_out_item(number, 1).prompt for number in range(3000)}
    assert len(trained) > 1000
    assert len(scored) > 500
    assert not trained & scored


def test_a_scored_name_can_be_finished_from_its_first_mention_alone() -> None:
    for number in range(300):
        item = induction.held_out_item(number)
        before, letter = item.prompt[:-1], item.prompt[-1]
        assert {name[1] for name in NAME.findall(before) if name[0] == letter} == {item.answer}
        assert item.rest == "" or not item.rest[0].isalpha()


def test_no_pair_of_letters_that_is_scored_was_in_a_story_to_train_on() -> None:
    trained = {
        name
        for number in range(4000)
        for name in NAME.findall(induction.training_item(number, rare_one_of=2).text)
        if len(name) == 2
    }
    scored = {item.prompt[-1] + item.answer for item in map(induction.held_out_item, range(1000))}
    assert len(trained) > 300
    assert len(scored) > 100
    assert not trained & scored


def test_two_token_names_are_as_rare_in_stories_as_was_asked() -> None:
    stories = [induction.training_item(number, rare_one_of=10).text for number in range(3000)]
    names = [NAME.findall(story) for story in stories]
    assert all(len({len(name) for name in found}) == 1 for found in names)
    assert 200 < sum(len(found[0]) == 2 for found in names) < 400


@pytest.mark.parametrize(
    "draw",
    [partial(polynomials.training_item, most_operations=3), partial(induction.training_item, rare_one_of=10)],
    ids=["polynomials", "induction"],
)
def test_items_come_once_each_and_the_same_every_time(draw: partial[Item]) -> None:
    random.seed(1)
    items = list(distinct(draw, 100))
    random.seed(2)
    assert items == list(distinct(draw, 100))
    assert len({item.text for item in items}) == 100


def test_a_task_s_text_is_written_once_and_scored_by_as_many_of_each_group(tmp_path: Path) -> None:
    (source,) = sources_of("induction", SMOKE, tmp_path)
    path = Path(source.removeprefix("jsonl:"))
    written = path.read_bytes()
    assert written.count(b"\n") == SMOKE.task_documents
    path.write_bytes(written + b"\n")
    assert sources_of("induction", SMOKE, tmp_path) == (source,)
    assert path.read_bytes() == written + b"\n"
    groups = [item.group for item in scored_items("polynomials", SMOKE)]
    assert len(groups) == SMOKE.task_items * (TRAINED_OPERATIONS + 2)
    assert {groups.count(group) for group in groups} == {SMOKE.task_items}


def test_a_corpus_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpus 'cod': there are code, prose"):
        sources_of("cod", SMOKE, tmp_path)
