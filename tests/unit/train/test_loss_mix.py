"""Names of losses and weights of depths: read back, or refused with what is allowed."""

from __future__ import annotations

import pytest

from headstart.errors import ConfigError
from headstart.train.loss_mix import LossMix, depth_weights


def test_a_mix_is_read_and_written() -> None:
    assert LossMix.parse("kl") == LossMix(kl=1)
    assert LossMix.parse(" 0.1*ce + 0.9*tv ") == LossMix(ce=0.1, tv=0.9)
    for text in ("kl", "0.1*ce+0.9*tv", "nla+0.001*lk"):
        assert str(LossMix.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lkk", "Did you mean 'lk'"),
        ("", "is no term"),
        ("kl+kl", "stands twice"),
        ("x*kl", "'x' is no number"),
        ("-1*kl", "not negative"),
        ("nan*kl", "must be finite"),
        ("0*kl+ce", "no effect"),
    ],
)
def test_a_mix_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LossMix.parse(text)


def test_a_mix_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no terms"):
        LossMix()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant", (1, 1, 1)),
        ("decay:0.5", (1, 0.5, 0.25)),
        ("1,0.5,0.2", (1, 0.5, 0.2)),
        ("normalised:constant", (1 / 3, 1 / 3, 1 / 3)),
        ("normalised:2,1,1", (0.5, 0.25, 0.25)),
        ("normalised:decay:0.6", (0.51, 0.31, 0.18)),  # the figures of FastMTP
    ],
)
def test_weights_of_depths(text: str, expected: tuple[float, ...]) -> None:
    assert depth_weights(text, 3) == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear", "give constant"),
        ("1,2", "2 weights for 3 depths"),
        ("0,0,0", "all weights are 0"),
        ("decay:0", "above 0"),
        ("decay:1.5", "not above 1"),
        ("decay:", "no number"),
        ("1,-1,1", "not negative"),
        ("constant:3", "give constant"),
    ],
)
def test_weights_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        depth_weights(text, 3)
