"""The kinds of fault that a server can have, and which of them are one fault's doing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

FaultKind = Literal[
    "token lost after a rejection",
    "stale cache row",
    "near-miss accepted",
    "other logits",
    "argmax at temperature 1",
    "seed shared",
    "draft distribution off",
    "stop string missed",
    "text cut short",
    "wrong finish reason",
    "wrong token count",
    "stream differs",
    "tokens differ",
]
"""What is wrong.

- token lost after a rejection: the token that replaces a rejected draft is missing; the text goes on after it.
- stale cache row: what a rejected draft left in the cache is still seen, so later logits are wrong.
- near-miss accepted: a draft was kept that is not the model's choice, though near it.
- other logits: already the first token of a text has other probabilities: other weights or another quantisation.
- argmax at temperature 1: the likeliest token is taken where one should be drawn.
- seed shared: requests with different seeds draw the same tokens.
- draft distribution off: drawn tokens do not have the model's distribution, in another way than these.
- stop string missed, text cut short, wrong finish reason, wrong token count, stream differs: as they say.
- tokens differ: the tokens are others, and nothing tells why.
"""

# A fault behind another's back: what is wrong with drawn tokens if greedy ones are wrong already, and so on.
_EXPLAINS: dict[FaultKind, frozenset[FaultKind]] = {
    "token lost after a rejection": frozenset(
        {"draft distribution off", "wrong token count", "text cut short", "tokens differ"}
    ),
    "stale cache row": frozenset({"near-miss accepted", "draft distribution off", "tokens differ"}),
    "near-miss accepted": frozenset({"draft distribution off", "tokens differ"}),
    "other logits": frozenset({"stale cache row", "near-miss accepted", "draft distribution off", "tokens differ"}),
    "argmax at temperature 1": frozenset({"seed shared", "draft distribution off"}),
    "seed shared": frozenset({"draft distribution off"}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault that was found.

    Attributes:
        kind: what.
        evidence: how it shows, in a sentence.
    """

    kind: FaultKind
    evidence: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"kind": self.kind, "evidence": self.evidence}


def root_faults(found: Iterable[Fault]) -> tuple[Fault, ...]:
    """Those that no other explains, one of each kind, in the order they were found."""
    by_kind: dict[FaultKind, Fault] = {}
    for fault in found:
        by_kind.setdefault(fault.kind, fault)
    explained = {kind for cause in by_kind for kind in _EXPLAINS.get(cause, ())}
    return tuple(fault for kind, fault in by_kind.items() if kind not in explained)
