"""How far another engine's logits may be from ours and still be the same model's: rounding, measured or bounded.

Two engines that compute the same sums in another order, or round in another place, give logits that differ a little. So
a near-tie between two tokens may fall either way. How much they differ is *measured*: where the text so far was given
to the server afresh, drafting has no part in the answer, and what it says of the two likeliest tokens is compared with
what we say. The errors found there are taken to have the tails of a Laplace distribution, which are heavier than
those of the sum of many small roundings, and the tolerance is what no error is to exceed in the whole run.

Logits themselves may be coarse: in bfloat16 one of 20 is a multiple of 1/8. Two servers of one engine then mostly agree
to the bit, and differ by a whole step else. So a step more or less is no sign of anything.

In most servers what is said of a token and its choice come from the same logits, and fresh answers show whether they
do. No difference between engines is in that, so that what goes against the server's own word need not be as large.

It is *bounded* by what the arithmetic explains: each of some eight results of a layer (projections, their inputs,
sums into the residual stream) is rounded, in a direction of its own, so after L layers a logit errs by about r sqrt(8
L) times the spread of logits. In 16-bit arithmetic r is 2**-9; engines for quantised weights, this one included,
round what enters a product to 8 bits in groups, and r is about 2**-7, as the largest of a group sets the steps for
all. What differs more was not computed from the same weights.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

ActivationBits = Literal[8, 16]

_ROUNDING: dict[ActivationBits, float] = {16: 2.0**-9, 8: 2.0**-7}
_ROUNDINGS_A_LAYER = 8
# our own logits are float32, and servers print some six digits
_ROUNDING_PRINTED = 1e-5
# equal logits still give log-probabilities that differ by about this
_ROUNDING_NORMALISED = 1e-4
# a median of fewer errors says little
MIN_MEASURED = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """What counts as rounding.

    Attributes:
        margin: nats by which a token may be less likely than the likeliest and still have been a tie.
        deviation: standard deviation of the error of the difference of two log-probabilities.
        largest: what the margin may be at most.
        step: what differs if anything does, where most places agree to the bit; else 0.
        own_margin: nats by which a fresh token was less likely than the likeliest by the server's own word, at most;
            `None` if too few of them tell.
        basis: whether the deviation was measured, or is the bound because the server tells no log-probabilities.
        num_measured: differences that were compared.
    """

    margin: float
    deviation: float
    largest: float
    step: float
    own_margin: float | None
    basis: Literal["measured", "bound"]
    num_measured: int

    @property
    def scale(self) -> float:
        """Of the Laplace distribution of errors."""
        return max(self.deviation / math.sqrt(2.0), _ROUNDING_PRINTED)

    @property
    def usual(self) -> float:
        """What the error at one place exceeds once in 150: to tell faults apart, not to find one."""
        return 5.0 * self.scale

    @property
    def slip(self) -> float:
        """Nats by which a token may be less likely than the likeliest by the server's own word.

        Even if fresh tokens never are, a guess's log-probability may come from another computation than its choice.
        """
        computed_again = self.scale + self.step
        return computed_again + (computed_again if self.own_margin is None else self.own_margin)

    @property
    def is_same_model(self) -> bool:
        """Whether rounding explains what was measured."""
        return self.margin <= self.largest

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "margin": self.margin,
            "deviation": self.deviation,
            "largest": self.largest,
            "step": self.step,
            "own_margin": self.own_margin,
            "basis": self.basis,
            "num_measured": self.num_measured,
        }


def find_tolerance(
    errors: Sequence[float],
    *,
    own_errors: Sequence[float] = (),
    own_margins: Sequence[float] = (),
    logit_spread: float,
    num_layers: int,
    activation_bits: ActivationBits,
    num_places: int,
    false_alarm: float,
) -> Tolerance:
    """From measured errors, or from the bound if there are hardly any.

    Args:
        errors: differences, theirs and ours, of the difference of two tokens' log-probabilities at a place.
        own_errors: likewise, of one engine that computes the same place in two ways; the larger errors count.
        own_margins: by how much tokens of fresh answers are less likely than the likeliest by the server's own word.
        logit_spread: standard deviation of the logits of a place.
        num_layers: of the model.
        activation_bits: of the coarser of the two engines.
        num_places: places that will be judged.
        false_alarm: probability that an error exceeds the margin at any of them.
    """
    bound = math.sqrt(2.0) * _ROUNDING[activation_bits] * math.sqrt(_ROUNDINGS_A_LAYER * num_layers) * logit_spread
    # P(|error| > t) = exp(-t / scale) for Laplace; its deviation is sqrt(2) scale, its median ln(2) scale
    tail = math.log(max(num_places, 1) / false_alarm)
    largest = bound / math.sqrt(2.0) * tail + _ROUNDING_PRINTED
    own_margin = max(own_margins) if len(own_margins) >= MIN_MEASURED else None
    if len(errors) < MIN_MEASURED:
        return Tolerance(
            margin=largest, deviation=bound, largest=largest, step=0.0, own_margin=own_margin, basis="bound",
            num_measured=len(errors),
        )  # fmt: skip
    scale, step = max(_scale_and_step(kind) for kind in (errors, own_errors) if len(kind) >= MIN_MEASURED)
    return Tolerance(
        margin=scale * tail + _ROUNDING_PRINTED,
        deviation=math.sqrt(2.0) * scale,
        largest=largest,
        step=step,
        own_margin=own_margin,
        basis="measured",
        num_measured=len(errors),
    )


def _scale_and_step(errors: Sequence[float]) -> tuple[float, float]:
    sizes = [abs(error) for error in errors]
    # a median: what is wrong in places must not hide there
    scale = statistics.median(sizes) / math.log(2.0)
    steps = [size for size in sizes if size > _ROUNDING_NORMALISED]
    if scale > _ROUNDING_NORMALISED or not steps:
        return scale, 0.0
    return min(statistics.fmean(sizes), min(steps)), min(steps)


def pair_errors(theirs: Sequence[tuple[object, float]], ours: Sequence[float]) -> list[float]:
    """Errors of differences at one place: of the first and second likeliest, the third and fourth, ...

    Differences, because then what all log-probabilities of a place share falls out.

    Args:
        theirs: the server's likeliest with log-probabilities.
        ours: our log-probabilities of the same tokens.
    """
    both = [(their, our) for (_, their), our in zip(theirs, ours, strict=True) if math.isfinite(our)]
    return [
        (first[0] - second[0]) - (first[1] - second[1])
        for first, second in zip(both[::2], both[1::2], strict=False)
        if math.isfinite(first[0]) and math.isfinite(second[0])
    ]
