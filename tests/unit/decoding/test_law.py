"""The sampling law against a second, slower writing of it, and each rule by example."""

import itertools
import math

import numpy as np
import pytest

from headstart.decoding.law import ReferenceChooser, gumbel_noise, keep_likeliest
from headstart.errors import ConfigError, HeadstartError
from headstart.records import SamplingParams


def chooser(params=None, *, seed=0, prompt=(), end_tokens=(), vocab_size=5, **fields):
    return ReferenceChooser(params or SamplingParams(**fields), seed, prompt, end_tokens, vocab_size)


def row(*logits):
    return np.array(logits, np.float32)


def plain_law(params, logits, prompt, output, end_tokens):
    """(adjusted logits, probabilities) by the words of `SamplingParams`, one token at a time."""
    adjusted = []
    for token, logit in enumerate(logits.tolist()):
        logit += params.logit_bias.get(token, 0.0)
        if token in prompt or token in output:
            logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
        if token in output:
            logit -= params.presence_penalty
            logit -= params.frequency_penalty * output.count(token)
        if params.allowed_tokens is not None and token not in params.allowed_tokens:
            logit = -math.inf
        if token in end_tokens and len(output) < params.min_tokens:
            logit = -math.inf
        adjusted.append(logit)
    best_first = sorted(range(len(adjusted)), key=lambda token: (-adjusted[token], token))
    if params.temperature == 0:
        return adjusted, [float(token == best_first[0]) for token in range(len(adjusted))]
    kept = best_first[: params.top_k] if params.top_k else best_first
    odds = {token: math.exp((adjusted[token] - adjusted[best_first[0]]) / params.temperature) for token in kept}
    if params.top_p < 1:
        total, reached = sum(odds.values()), 0.0
        for count, token in enumerate(kept, 1):  # noqa: B007, used after the loop
            reached += odds[token]
            if reached >= params.top_p * total:
                break
        kept = kept[:count]
    kept = [token for token in kept if odds[token] >= params.min_p * odds[kept[0]]]
    total = sum(odds[token] for token in kept)
    return adjusted, [odds[token] / total if token in kept else 0.0 for token in range(len(adjusted))]


def random_case(generator, vocab_size):
    def sometimes(value, otherwise):
        return value if generator.random() < 0.5 else otherwise

    def tokens(count):
        return tuple(generator.integers(vocab_size, size=count).tolist())

    params = SamplingParams(
        temperature=float(generator.choice([0.0, 0.3, 1.0, 2.5])),
        top_k=sometimes(int(generator.integers(1, vocab_size + 2)), 0),
        top_p=sometimes(float(generator.uniform(0.05, 1.0)), 1.0),
        min_p=sometimes(float(generator.uniform(0.0, 1.0)), 0.0),
        repetition_penalty=sometimes(float(generator.uniform(0.5, 2.0)), 1.0),
        presence_penalty=sometimes(float(generator.normal()), 0.0),
        frequency_penalty=sometimes(float(generator.normal()), 0.0),
        logit_bias=sometimes(dict.fromkeys(tokens(2), float(generator.normal(scale=3))), {}),
        allowed_tokens=sometimes((0, *tokens(2)), None),
        min_tokens=int(generator.integers(0, 4)),
        logprobs=2,
    )
    # whole numbers, so that ties are common
    logits = generator.integers(-3, 4, size=vocab_size).astype(np.float32)
    logits[1:][generator.random(vocab_size - 1) < 0.1] = -np.inf
    end_tokens = (vocab_size - 1,) if vocab_size > 1 else ()
    written, path = tokens(int(generator.integers(0, 3))), tokens(int(generator.integers(0, 3)))
    return params, logits, tokens(2), written, path, end_tokens


def random_cases(count, largest):
    generator = np.random.default_rng(20)
    for index in range(count):
        yield random_case(generator, 1 + index % largest)


def test_probabilities_are_those_of_the_plain_law():
    for params, logits, prompt, written, path, end_tokens in random_cases(1500, 5):
        law = chooser(params, prompt=prompt, end_tokens=end_tokens, vocab_size=len(logits))
        law.extend(written)

        _, expected = plain_law(params, logits, prompt, written + path, end_tokens)

        assert law.probabilities(logits, path) == pytest.approx(expected, abs=1e-14)


def test_choice_is_the_gumbel_argmax_of_the_plain_law():
    for params, logits, prompt, written, path, end_tokens in random_cases(1500, 5):
        law = chooser(params, seed=99, prompt=prompt, end_tokens=end_tokens, vocab_size=len(logits))
        law.extend(written)

        _, probabilities = plain_law(params, logits, prompt, written + path, end_tokens)
        noise = gumbel_noise(99, 31, range(len(logits))).tolist()
        scores = [math.log(p) + noise[t] if p else -math.inf for t, p in enumerate(probabilities)]

        assert law.choose(logits, 31, path)[0] == scores.index(max(scores))


def test_logprobs_are_of_the_law_before_temperature_and_filters():
    for params, logits, prompt, written, path, end_tokens in random_cases(500, 5):
        law = chooser(params, prompt=prompt, end_tokens=end_tokens, vocab_size=len(logits))
        law.extend(written)

        adjusted, _ = plain_law(params, logits, prompt, written + path, end_tokens)
        total = math.log(sum(math.exp(logit) for logit in adjusted))
        best_first = sorted(range(len(adjusted)), key=lambda token: (-adjusted[token], token))
        token, logprobs = law.choose(logits, 0, path)

        assert logprobs.chosen == pytest.approx(adjusted[token] - total)
        expected = [(t, adjusted[t] - total) for t in best_first[:2] if adjusted[t] > -math.inf]
        assert [t for t, _ in logprobs.top] == [t for t, _ in expected]
        assert [value for _, value in logprobs.top] == pytest.approx([value for _, value in expected])


def test_a_choice_depends_on_seed_and_position_alone():
    logits = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    law, same = (chooser(seed=8, temperature=1.0, vocab_size=1000) for _ in range(2))
    other = chooser(seed=9, temperature=1.0, vocab_size=1000)
    same.extend([1, 2, 3])  # no penalty is set, so what was written has no say

    def written(law, positions):
        return [law.choose(logits, position)[0] for position in positions]

    assert written(law, range(20)) == written(same, reversed(range(20)))[::-1]
    assert written(law, range(20)) != written(other, range(20))


# ---------------------------------------------------------------- single rules


def test_temperature_zero_ignores_the_filters():
    law = chooser(top_k=1, top_p=0.1, min_p=1.0)

    assert law.choose(row(0, 3, 1, 3, 2), 0) == (1, None)
    assert law.probabilities(row(0, 3, 1, 3, 2)).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p", "kept"),
    [
        (2, 1.0, 0.0, [1, 3]),
        (3, 1.0, 0.0, [0, 1, 3]),  # 0 and 2 tie for the third place; the lower id has it
        (9, 1.0, 0.0, [0, 1, 2, 3]),
        (0, 0.3, 0.0, [1]),
        (0, 1 / 3, 0.0, [1]),  # reached exactly
        (0, 0.34, 0.0, [1, 3]),
        (0, 0.67, 0.0, [0, 1, 3]),
        (0, 1.0, 0.5, [0, 1, 2, 3]),
        (0, 1.0, 0.51, [1, 3]),
        (2, 0.5, 0.0, [1]),  # top-p counts what top-k left
        (3, 0.8, 0.6, [1, 3]),
    ],
)
def test_filters_keep(top_k, top_p, min_p, kept):
    scaled = np.array([0.0, math.log(2), 0.0, math.log(2), -np.inf])  # 1/6, 1/3, 1/6, 1/3, 0

    filtered = keep_likeliest(scaled, top_k, top_p, min_p)

    assert np.flatnonzero(filtered > -np.inf).tolist() == kept
    assert (filtered[kept] == scaled[kept]).all()


def test_repetition_penalty_counts_prompt_output_and_path_once_each():
    law = chooser(repetition_penalty=2.0, prompt=[0, 0])
    law.extend([1, 1])

    assert law.adjusted_logits(row(4, 4, 4, -4, 4), path=[2, 3]).tolist() == [2, 2, 2, -8, 4]


def test_presence_and_frequency_penalties_do_not_count_the_prompt():
    law = chooser(presence_penalty=1.0, frequency_penalty=0.5, prompt=[0, 0])
    law.extend([1, 1])

    assert law.adjusted_logits(row(4, 4, 4, 4, 4), path=[1, 2]).tolist() == [4, 1.5, 2.5, 4, 4]


def test_a_path_leaves_no_trace():
    law = chooser(frequency_penalty=1.0, min_tokens=2, end_tokens=[4])
    before = law.adjusted_logits(row(1, 2, 3, 4, 5))

    law.adjusted_logits(row(1, 2, 3, 4, 5), path=[3, 3])

    assert law.adjusted_logits(row(1, 2, 3, 4, 5)).tolist() == before.tolist()


def test_bias_comes_before_the_repetition_penalty():
    law = chooser(logit_bias={0: 3.0, 1: -math.inf}, repetition_penalty=2.0, prompt=[0])

    assert law.adjusted_logits(row(-1, 0, 0, 0, 0)).tolist() == [1, -math.inf, 0, 0, 0]


def test_end_tokens_are_barred_until_enough_was_written():
    law = chooser(min_tokens=3, end_tokens=[4, 10**6])
    law.extend([0])
    logits = row(1, 0, 0, 0, 9)

    assert [law.choose(logits, 0, path)[0] for path in ([], [0], [0, 0])] == [0, 0, 4]


def test_only_allowed_tokens_are_chosen():
    law = chooser(allowed_tokens=(3, 1), temperature=1.0)

    assert np.flatnonzero(law.probabilities(row(9, 1, 9, 1, 9))).tolist() == [1, 3]


def test_logprobs_name_the_chosen_alone_when_none_of_the_likeliest_are_wanted():
    token, logprobs = chooser(logprobs=0).choose(row(0, 0, 0, 0, -np.inf), 0)

    assert (token, logprobs.top) == (0, ())
    assert logprobs.chosen == pytest.approx(math.log(1 / 4))


def test_logprobs_leave_out_barred_tokens():
    _, logprobs = chooser(logprobs=4, allowed_tokens=(2, 4)).choose(row(0, 0, 1, 0, 1), 0)

    assert [token for token, _ in logprobs.top] == [2, 4]


def test_the_callers_logits_are_not_written_to():
    logits = row(1, 2, 3, 4, 5)
    law = chooser(logit_bias={0: 9.0}, repetition_penalty=2.0, prompt=[1], allowed_tokens=(0, 1), temperature=1.0)

    law.choose(logits, 0)

    assert logits.tolist() == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_broken_logits_are_refused_even_where_no_one_would_choose_them(broken):
    law = chooser(allowed_tokens=(0,))

    with pytest.raises(HeadstartError, match="token id 3 is"):
        law.choose(row(1, 2, 3, broken, 5), 0)


def test_logits_of_another_vocabulary_are_refused():
    with pytest.raises(HeadstartError, match="shape"):
        chooser().choose(row(1, 2), 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {0: -math.inf}, "allowed_tokens": (0,)},
        {"allowed_tokens": (4,), "min_tokens": 1},
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_barring_every_token_is_refused(fields, temperature):
    law = chooser(**fields, temperature=temperature, end_tokens=[4])

    with pytest.raises(ConfigError, match="No token can be chosen"):
        law.choose(row(1, 2, 3, 4, 5), 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e-308},
        {"frequency_penalty": -1e308},
        {"repetition_penalty": 1e-308, "frequency_penalty": 1e308},
    ],
)
def test_overflow_is_refused(fields):
    law = chooser(**fields)
    law.extend([0, 0, 0])

    with pytest.raises(ConfigError, match="overflow"):
        law.choose(row(1e30, 2, 3, 4, 5), 0)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"logit_bias": {5: 1.0}}, "logit_bias"),
        ({"allowed_tokens": (-1,)}, "allowed_tokens"),
        ({"prompt": [7]}, "prompt"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(fields, name):
    with pytest.raises(ConfigError, match=f"{name}: token id .* 0 to 4"):
        chooser(**fields)


def test_every_combination_of_filters_keeps_the_likeliest_token():
    for top_k, top_p, min_p in itertools.product([0, 1, 3], [1e-9, 0.5, 1.0], [0.0, 1.0]):
        law = chooser(temperature=0.7, top_k=top_k, top_p=top_p, min_p=min_p)
        assert law.probabilities(row(0, 2, 1, 2, 0))[1] > 0
