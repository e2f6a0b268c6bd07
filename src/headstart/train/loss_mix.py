"""How a training loss is named: its terms, their weights, and the weights of depths.

Names and numbers only, so that a command can read and refuse them before torch is loaded. What the terms
compute stands in `headstart.train.losses`.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields

from headstart.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class LossMix:
    """A weighted sum of the losses of a draft row; every weight is finite, not negative, and not all are 0.

    Attributes:
        ce: cross-entropy on the label.
        kl: KL(trunk || draft).
        tv: total variation, 1 - acceptance.
        nla: negative logarithm of the acceptance.
        lk: KL where acceptance is low, total variation where it is high.

    Raises:
        ConfigError: a weight is negative or not finite, or all are 0.
    """

    ce: float = 0.0
    kl: float = 0.0
    tv: float = 0.0
    nla: float = 0.0
    lk: float = 0.0

    def __post_init__(self) -> None:
        weights = self._weights()
        for name, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ConfigError(f"loss weight {name} = {weight}: it must be finite and not negative.")
        if not any(weights.values()):
            raise ConfigError(f"a loss of no terms would train nothing: give a weight to one of {', '.join(weights)}.")

    @classmethod
    def parse(cls, text: str) -> LossMix:
        """Read a mix such as "kl" or "0.1*ce+0.9*tv".

        Raises:
            ConfigError: an unknown or repeated term, or a weight that is no number or 0.
        """
        weights: dict[str, float] = {}
        for term in text.split("+"):
            factor, star, name = term.rpartition("*")
            name = name.strip()
            if name not in cls.term_names():
                nearest = difflib.get_close_matches(name, cls.term_names(), n=1)
                hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
                raise ConfigError(
                    f"loss {text!r}: {name!r} is no term; there are {', '.join(cls.term_names())}, "
                    f"joined like 0.1*ce+0.9*tv.{hint}"
                )
            if name in weights:
                raise ConfigError(f"loss {text!r}: {name!r} stands twice. Add its weights up to one term.")
            weights[name] = _number(factor, f"loss {text!r}") if star else 1.0
            if weights[name] == 0:
                raise ConfigError(f"loss {text!r}: {name!r} with weight 0 has no effect. Leave it out.")
        return cls(**weights)

    @classmethod
    def term_names(cls) -> tuple[str, ...]:
        """The names that `parse` knows."""
        return tuple(field.name for field in fields(cls))

    @property
    def needs_labels(self) -> bool:
        """Whether a term reads labels."""
        return self.ce > 0

    @property
    def needs_trunk(self) -> bool:
        """Whether a term reads the trunk's distribution."""
        return self.needs_divergence or self.needs_acceptance

    @property
    def needs_divergence(self) -> bool:
        """Whether a term's gradient goes through the KL divergence."""
        return self.kl > 0 or self.lk > 0

    @property
    def needs_acceptance(self) -> bool:
        """Whether a term's gradient goes through the acceptance."""
        return self.tv > 0 or self.nla > 0 or self.lk > 0

    def __str__(self) -> str:
        terms = ((name, weight) for name, weight in self._weights().items() if weight)
        return "+".join(name if weight == 1 else f"{weight!r}*{name}" for name, weight in terms)

    def _weights(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in self.term_names()}


def depth_weights(text: str, num_depths: int) -> tuple[float, ...]:
    """The weight of the loss of each depth, the nearest first.

    | text | weights | used by |
    |---|---|---|
    | `constant` | 1, 1, 1, ... | Gloeckle et al. 2404.19737 |
    | `decay:B` | 1, B, B^2, ... | EAGLE-3 2503.01840 (0.8); Medusa 2401.10774 (0.8, and once more over all) |
    | `1,0.5,0.25` | as they stand | any list, one for each depth |
    | `normalised:...` | one of these over its sum | FastMTP 2509.18362: `normalised:decay:0.6`; with `constant`, the mean over depths of DeepSeek-V3 2412.19437 |

    Raises:
        ConfigError: the text is none of these, the list has another length, a weight is not finite or
            negative, or none is above 0.
    """  # noqa: E501
    if num_depths < 1:
        raise ConfigError(f"{num_depths} depths: there must be at least 1.")
    normalised = text.startswith("normalised:")
    kind, _, value = text.removeprefix("normalised:").partition(":")
    where = f"depth weights {text!r}"
    if kind == "constant" and not value:
        weights = [1.0] * num_depths
    elif kind == "decay":
        decay = _number(value, where)
        if not 0 < decay <= 1:
            raise ConfigError(f"{where}: the decay must lie above 0 and not above 1.")
        weights = [decay**depth for depth in range(num_depths)]
    elif not value and kind[:1].isdigit():
        weights = [_number(part, where) for part in kind.split(",")]
    else:
        raise ConfigError(f"{where}: give constant, decay:0.8 or a list like 1,0.5,0.25, or normalised: before these.")
    if len(weights) != num_depths:
        raise ConfigError(f"{where}: {len(weights)} weights for {num_depths} depths. Give one for each.")
    if not any(weights):
        raise ConfigError(f"{where}: all weights are 0, so nothing would be trained.")
    total = sum(weights) if normalised else 1.0
    return tuple(weight / total for weight in weights)


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{where}: {text.strip()!r} is no number.") from None
    if not (math.isfinite(number) and number >= 0):
        raise ConfigError(f"{where}: {number} must be finite and not negative.")
    return number
