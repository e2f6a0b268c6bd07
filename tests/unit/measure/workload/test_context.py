from __future__ import annotations

import pytest

from headstart.measure.workload import Filler, Prompt, fill

QUESTION = Prompt(id="a", category="c", messages=(("system", "Be brief."), ("user", "Why is the sky blue?")))


def words(prompt: Prompt) -> int:
    return sum(len(content.split()) for _, content in prompt.messages)


@pytest.mark.parametrize("length", [40, 500, 3000])
def test_notes_bring_a_prompt_to_its_length(length: int) -> None:
    filled = fill(QUESTION, length, Filler(0), words)
    assert filled is not None
    assert length - 30 < words(filled) <= length  # short by less than a sentence
    (_, system), (_, question) = filled.messages
    assert system == "Be brief."
    assert question.endswith("Why is the sky blue?")


def test_nothing_is_cut_off_or_added_in_part() -> None:
    assert fill(QUESTION, words(QUESTION) - 1, Filler(0), words) is None
    assert fill(QUESTION, words(QUESTION), Filler(0), words) == QUESTION


def test_other_seeds_give_other_notes() -> None:
    assert Filler(1).text(5) == Filler(1).text(5)
    assert Filler(1).text(5) != Filler(2).text(5)
    sentences = Filler(1).text(300).split(". ")
    assert len(set(sentences)) > 295  # a look-up in them finds no whole sentence again
