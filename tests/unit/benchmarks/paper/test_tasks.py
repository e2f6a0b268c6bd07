"""Made-up tasks: answers against another way of working them out, and nothing held out that was trained on."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from headstart.errors import ConfigError
from paper.budgets import SMOKE
from paper.corpora import TRAINED_OPERATIONS, scored_items, sources_of
from paper.tasks import induction, polynomials
from paper.tasks.item import Item, distinct, mean_by_group

NAME = re.compile("[A-Z][a-z]?")


SEVEN, THREE = polynomials.Ring(7, 3), polynomials.Ring(3, 3)


class Residue:
    """Fp[X]/(X^3) by convolution; an expression's own text is Python over these."""

    def __init__(self, digits: str, modulus: int) -> None:
        self.coefficients, self.modulus = np.array([int(digit) for digit in digits]), modulus

    def like(self, coefficients: np.ndarray) -> Residue:
        return Residue("".join(str(c) for c in np.append(coefficients, [0, 0, 0])[:3] % self.modulus), self.modulus)

    def __add__(self, other: Residue) -> Residue:
        return self.like(self.coefficients + other.coefficients)

    def __neg__(self) -> Residue:
        return self.like(-self.coefficients)

    def __mul__(self, other: Residue) -> Residue:
        return self.like(np.convolve(self.coefficients, other.coefficients))

    def __matmul__(self, other: Residue) -> Residue:
        constant, first, second = self.coefficients
        square = np.convolve(other.coefficients, other.coefficients)[:3]
        return self.like(np.array([constant, 0, 0]) + first * other.coefficients + second * square)

    def __str__(self) -> str:
        return "".join(map(str, self.coefficients))


def worked_out(expression: str, ring: polynomials.Ring) -> str:
    return str(
        eval(re.sub(r"(\d{3})", r'residue("\1")', expression), {"residue": partial(Residue, modulus=ring.modulus)})
    )


def items_of(sheet: Item) -> list[tuple[str, str]]:
    """Expressions and their values."""
    return [(expression, value) for expression, value in (line.split("=") for line in sheet.text.split("\n"))]


@pytest.mark.parametrize(
    ("text", "value"), [("(304+125)", "422"), ("-152", "625"), ("(110*001)", "001"), ("(010@352)", "352")]
)
def test_the_oracle_of_these_tests_works_out_what_a_person_does(text: str, value: str) -> None:
    assert worked_out(text, SEVEN) == value


@pytest.mark.parametrize("ring", [SEVEN, THREE])
@pytest.mark.parametrize("operations", [1, 2, 3, 5])
def test_an_expression_has_its_operations_and_its_value(operations: int, ring: polynomials.Ring) -> None:
    for number in range(60):
        item = polynomials.held_out_item(number, ring, operations)
        assert len(re.findall(r"[-+*@]", item.prompt)) == operations
        assert item.prompt[-1] == "="
        assert item.answer == worked_out(item.prompt[:-1], ring), item.prompt
        assert item.text == item.prompt + item.answer


def test_sheets_to_train_on_have_expressions_of_up_to_so_many_operations() -> None:
    sheets = [items_of(polynomials.training_sheet(number, THREE, 3)) for number in range(30)]
    assert {len(sheet) for sheet in sheets} == {polynomials.SHEET_ITEMS}
    items = [item for sheet in sheets for item in sheet]
    assert {len(re.findall(r"[-+*@]", expression)) for expression, _ in items} == {1, 2, 3}
    assert all(value == worked_out(expression, THREE) for expression, value in items)


def test_no_expression_that_is_scored_was_trained_on() -> None:
    # few expressions have one operation, so that by chance alone most would be both
    sheets = (polynomials.training_sheet(number, THREE, 1) for number in range(3000))
    trained = {expression for sheet in sheets for expression, _ in items_of(sheet)}
    scored = {polynomials.held_out_item(number, THREE, 1).prompt[:-1] for number in range(10000)}
    # what there is: 27 negations and 3 x 729 of the others
    assert len(trained | scored) == 27 + 3 * 27**2
    assert 450 < len(scored) < 650
    mirrored = {re.sub(r"\((\d+)([+*])(\d+)\)", r"(\3\2\1)", expression) for expression in scored}
    assert not trained & (scored | mirrored)
    assert len(mirrored - scored) == 0


def test_expressions_are_alike_where_only_sides_of_sums_and_products_are_exchanged() -> None:
    found = [polynomials.expression(random.Random(number), THREE, 3) for number in range(3000)]
    assert all(sorted(each.text) == sorted(each.likes) for each in found)
    assert all(worked_out(each.likes, THREE) == "".join(map(str, each.value)) for each in found[:100])
    # of compositions alone the order counts
    for each in found:
        if not set(each.text) & set("+*"):
            assert each.likes == each.text
    assert sum(each.likes != each.text for each in found) > 500


def test_a_scored_name_can_be_finished_from_its_first_mention_alone() -> None:
    for number in range(300):
        item = induction.scored_item(number)
        before, letter = item.prompt[:-1], item.prompt[-1]
        assert {name[1] for name in NAME.findall(before) if name[0] == letter} == {item.answer}
        assert item.rest == "" or not item.rest[0].isalpha()


def places(item: Item) -> list[str]:
    """The names of a scored item in the order of their last mentions."""
    return list(dict.fromkeys(reversed(NAME.findall(item.prompt[:-1]))))


def test_where_names_stand_tells_nothing_of_the_one_that_is_scored() -> None:
    """Models copy some name before they learn which; it must not pass for having learnt it."""
    items = [induction.scored_item(number) for number in range(3000)]
    (by_any,) = mean_by_group(items, induction.share_without_reading_the_letter).values()
    assert 0.39 < by_any < 0.44
    ways = {
        "mentioned last": lambda item: places(item)[0],
        "mentioned longest ago": lambda item: places(item)[-1],
        "mentioned first": lambda item: NAME.findall(item.prompt)[0],
        "mentioned most": lambda item: max(places(item), key=item.prompt.count),
    }
    for way, choose in ways.items():
        right = np.mean([choose(item)[1] == item.answer for item in items])
        assert right == pytest.approx(by_any, abs=0.03), way


def test_how_often_an_unread_letter_is_finished_rightly() -> None:
    assert induction.share_without_reading_the_letter(Item("Ab saw Cd. Ef met Cd. A", "b")) == pytest.approx(1 / 3)
    assert induction.share_without_reading_the_letter(Item("Ab saw Cb. Ef met Cb. A", "b")) == pytest.approx(2 / 3)


def test_no_pair_of_letters_tells_more_than_another() -> None:
    def pairs(stories: Iterable[str]) -> Counter[str]:
        return Counter(name for story in stories for name in set(NAME.findall(story)))

    trained = pairs(induction.training_item(number, rare_one_of=1).text for number in range(20000))
    scored = pairs(induction.scored_item(number).prompt for number in range(20000))
    for counts in (trained, scored):
        # five standard deviations of a Poisson count
        pairs_of_letters = map("".join, product(induction.FIRST_LETTERS, induction.SECOND_LETTERS))
        found = [counts[pair] for pair in pairs_of_letters]
        expected = 20000 * induction.NAMES / len(found)
        assert min(found) > expected - 5 * expected**0.5
        assert max(found) < expected + 5 * expected**0.5


def test_two_token_names_are_as_rare_in_stories_as_was_asked() -> None:
    stories = [induction.training_item(number, rare_one_of=10).text for number in range(3000)]
    names = [NAME.findall(story) for story in stories]
    assert all(len({len(name) for name in found}) == 1 for found in names)
    assert 200 < sum(len(found[0]) == 2 for found in names) < 400


@pytest.mark.parametrize(
    "draw",
    [
        partial(polynomials.training_sheet, ring=THREE, most_operations=3),
        partial(induction.training_item, rare_one_of=10),
    ],
    ids=["polynomials", "induction"],
)
def test_items_come_once_each_and_the_same_every_time(draw: partial[Item]) -> None:
    random.seed(1)
    items = list(distinct(draw, 100))
    random.seed(2)
    assert items == list(distinct(draw, 100))
    assert len({item.text for item in items}) == 100


def test_more_items_than_there_are_end_with_words_and_not_never() -> None:
    few = partial(polynomials.held_out_item, ring=polynomials.Ring(2, 2), operations=1)
    with pytest.raises(ConfigError, match=r"100 items like .* are asked for; there seem to be \d+ of them"):
        list(distinct(few, 100))


def test_a_task_s_text_is_written_once_and_scored_by_as_many_of_each_group(tmp_path: Path) -> None:
    (source,) = sources_of("induction", SMOKE, tmp_path)
    path = Path(source.removeprefix("jsonl:"))
    written = path.read_bytes()
    assert written.count(b"\n") == SMOKE.task_training_items
    path.write_bytes(written + b"\n")
    assert sources_of("induction", SMOKE, tmp_path) == (source,)
    assert path.read_bytes() == written + b"\n"
    groups = [item.group for item in scored_items("polynomials", SMOKE)]
    assert len(groups) == SMOKE.task_items * (TRAINED_OPERATIONS + 2)
    assert {groups.count(group) for group in groups} == {SMOKE.task_items}


def test_a_corpus_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpus 'cod': there are code, prose"):
        sources_of("cod", SMOKE, tmp_path)
