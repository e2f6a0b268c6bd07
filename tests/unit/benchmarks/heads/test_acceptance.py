"""Guesses of heads that are counted, and drafted texts held against plain ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from head_figures.acceptance import Acceptance, Identity, answer_all_turns, measure_acceptance, no_progress
from head_figures.engines import Engines, complete
from head_figures.workload import Question, make_prompt, read_questions
from headstart import SamplingParams
from headstart.records import Completion


def test_acceptance_is_pooled_over_rounds_not_averaged_over_texts(completion: Callable[..., Completion]) -> None:
    acceptance = Acceptance()
    params = SamplingParams()
    acceptance.add("gsm8k", completion(tuple(range(10)), accepted=(4, 2), reached=(8, 4), rounds=8), params)
    acceptance.add("math", completion((1, 2), accepted=(0, 0), reached=(2, 0), rounds=2), params)
    acceptance.add("humaneval", completion(tuple(range(6)), accepted=(2, 2), reached=(2, 2), rounds=2), params)
    assert acceptance.tau == 18 / 12
    assert acceptance.tau_by_category() == {
        "gsm8k": 10 / 8, "math": 1.0, "humaneval": 3.0, "maths": 12 / 10, "code": 3.0, "all": 18 / 12,
    }  # fmt: skip
    assert acceptance.over_all.conditional_acceptance == (6 / 12, 4 / 6)
    assert acceptance.over_all.survival == pytest.approx((6 / 12, 4 / 12))
    # of twelve rounds six kept nothing, two one guess, four two
    assert acceptance.share_of_rounds_by_length() == pytest.approx({"1": 6 / 12, "2": 2 / 12, "3": 4 / 12})


def test_texts_that_repeat_themselves_are_told(completion: Callable[..., Completion]) -> None:
    acceptance = Acceptance()
    acceptance.add("qa", completion((5,) * 17, accepted=(0,), reached=(1,), rounds=17), SamplingParams())
    assert acceptance.distinct_share() == 1 / 10


def test_without_texts_there_are_no_figures() -> None:
    acceptance = Acceptance()
    assert acceptance.tau is None
    assert acceptance.tau_by_category() == {"maths": None, "code": None, "all": None}
    assert acceptance.share_of_rounds_by_length() == {}
    assert acceptance.distinct_share() is None
    assert Identity().holds is None


def test_acceptance_does_not_depend_on_the_order_and_the_texts_are_plain_ones(
    engines: Engines, files: tuple[Path, Path, Path]
) -> None:
    params = SamplingParams(max_tokens=24)
    references = answer_all_turns(engines.plain, read_questions(files[2]), params, no_progress)
    count = len(references)
    assert count == 10
    taus = []
    for order in (references, references[::-1]):
        acceptance, identity = Acceptance(), Identity()
        measure_acceptance(engines.with_heads(), order, [params] * count, acceptance, identity, no_progress)
        assert (identity.holds, identity.num_compared) == (True, count)
        taus.append(acceptance.tau)
    assert taus[0] == taus[1]


def test_a_text_that_differs_is_named(engines: Engines) -> None:
    prompt = make_prompt(engines.plain.tokenizer, Question(id="x", category="c", turns=("the rain",)))
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    other = engines.plain.generate(prompt.token_ids, SamplingParams(max_tokens=7, ignore_eos=True))
    identity = Identity()
    measure_acceptance(engines.with_heads(), [(prompt, other)], [params], Acceptance(), identity, no_progress)
    assert identity.holds is False
    assert identity.different == ["x"]


def test_answers_come_with_their_prompts_whichever_ends_first(engines: Engines) -> None:
    question = Question(id="x", category="c", turns=("the rain",))
    prompts = [make_prompt(engines.plain.tokenizer, question)] * 3
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (9, 3, 6)]
    answers = dict(complete(engines.plain, prompts, params))
    assert {index: len(answer.token_ids) for index, answer in answers.items()} == {0: 9, 1: 3, 2: 6}
