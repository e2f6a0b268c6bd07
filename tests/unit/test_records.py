"""Parameters out of their range are refused where they are made, with what came and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from headstart.errors import ConfigError
from headstart.records import SamplingParams, Tree


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", 1 << 31, "below 2\\*\\*31"),
        ("temperature", 10**400, "0 or a finite positive number"),
        ("temperature", -0.1, "0 or a finite positive number"),
        ("temperature", math.nan, "0 or a finite positive number"),
        ("temperature", math.inf, "0 or a finite positive number"),
        ("top_k", -1, "0 \\(off\\) or more"),
        ("top_p", 0.0, "above 0, at most 1"),
        ("top_p", 1.01, "above 0, at most 1"),
        ("top_p", math.nan, "above 0, at most 1"),
        ("min_p", -0.01, "between 0 and 1"),
        ("min_p", 1.01, "between 0 and 1"),
        ("repetition_penalty", 0.0, "a finite positive number"),
        ("repetition_penalty", math.inf, "a finite positive number"),
        ("presence_penalty", math.nan, "a finite number"),
        ("frequency_penalty", math.inf, "a finite number"),
        ("allowed_tokens", (), "not empty"),
        ("seed", -1, "between 0 and 2\\*\\*64 - 1"),
        ("seed", 1 << 64, "between 0 and 2\\*\\*64 - 1"),
        ("stop", ("ok", ""), "not empty"),
        ("min_tokens", -1, "between 0 and max_tokens"),
        ("min_tokens", 257, "between 0 and max_tokens"),
        ("logprobs", -1, "between 0 and 100"),
        ("logprobs", 101, "between 0 and 100"),
    ],
)
def test_a_value_out_of_its_range_is_named(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = .*{allowed}"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 3.5),  # would step over 0 and never end
        ("max_tokens", None),
        ("max_tokens", "8"),
        ("min_tokens", 1.5),
        ("top_k", 2.5),
        ("seed", 1.5),
        ("logprobs", 1.5),
        ("temperature", None),
        ("top_p", "1"),
        ("presence_penalty", None),
        ("logit_bias", None),
        ("logit_bias", {5: "1"}),
        ("allowed_tokens", 5),
        ("stop", "abc"),  # would stop at each of its letters
        ("stop", None),
        ("stop", (5,)),
        ("stop_token_ids", 5),
    ],
)
def test_a_value_of_another_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}.* = .*: it must be "):
        SamplingParams(**{name: value})


def test_numbers_of_other_libraries_are_numbers() -> None:
    given: dict[str, Any] = {
        "max_tokens": np.int64(5),
        "temperature": np.float32(0.5),
        "logit_bias": {3: np.float32(1)},
    }
    params = SamplingParams(**given)
    assert params.max_tokens == 5
    assert params.temperature == 0.5


@pytest.mark.parametrize("bias", [math.nan, math.inf])
def test_a_bias_is_finite_or_forbids(bias: float) -> None:
    assert SamplingParams(logit_bias={7: -math.inf}).logit_bias == {7: -math.inf}
    with pytest.raises(ConfigError, match=r"logit_bias\[7\] = "):
        SamplingParams(logit_bias={7: bias})


@pytest.mark.parametrize(
    "edge",
    [
        {"max_tokens": 1}, {"top_p": 1.0}, {"top_p": 1e-9}, {"min_p": 0.0}, {"min_p": 1.0}, {"seed": 0},
        {"seed": (1 << 64) - 1}, {"min_tokens": 256}, {"logprobs": 0}, {"logprobs": 100}, {"presence_penalty": -2.0},
    ],
    ids=str,
)  # fmt: skip
def test_the_ends_of_a_range_belong_to_it(edge: dict[str, Any]) -> None:
    (name,) = edge
    assert getattr(SamplingParams(**edge), name) == edge[name]


def test_the_length_of_a_tree_is_its_number_of_nodes() -> None:
    assert len(Tree()) == 0
    assert len(Tree((5, 6), (-1, 0), (0.9, 0.5))) == 2
